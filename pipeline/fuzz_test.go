package pipeline

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// encode writes orders as bytes, and decode reads any bytes as orders: stages, micro-batches and replicas, and then two bytes for
// each op, its row and what it is.
func encode(cfg Config) []byte {
	cfg = cfg.withDefaults()
	data := []byte{byte(cfg.Stages - 1), byte(cfg.Micros - 1), byte(cfg.Replicas - 1)}
	for row, ops := range cfg.Orders {
		for _, op := range ops {
			data = append(data, byte(row), byte(op.Kind)|byte(op.Chunk)<<2|byte(op.Micro)<<4)
		}
	}
	return data
}

func decode(data []byte) (cfg Config, ok bool) {
	if len(data) < 3 || len(data) > 400 {
		return Config{}, false
	}
	cfg = Config{Stages: 1 + int(data[0]%6), Micros: 1 + int(data[1]%16), Replicas: 1 + int(data[2]%3)}
	cfg.Orders = make([][]Op, cfg.Stages*cfg.Replicas)
	for i := 3; i+1 < len(data); i += 2 {
		row, op := int(data[i])%len(cfg.Orders), data[i+1]
		cfg.Orders[row] = append(cfg.Orders[row], Op{Kind: Kind(op & 3), Chunk: int32(op>>2&3) - int32(data[i]>>7), Micro: int32(op >> 4)})
	}
	return cfg, true
}

func FuzzOrders(f *testing.F) {
	rng := rand.New(rand.NewPCG(6, 13))
	for range 20 {
		f.Add(encode(shuffled(rng, rng.IntN(3))))
	}
	f.Add([]byte{0, 0, 0})
	f.Add([]byte{1, 0, 0, 0, 0, 1, 1, 0x80, 3})
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, ok := decode(data)
		if !ok {
			return
		}
		l, err := New(cfg)
		var deadlock *DeadlockError
		switch {
		case errors.As(err, &deadlock):
			requireDeadlock(t, cfg, deadlock)
		case err != nil:
			require.True(t, errors.Is(err, lockstep.ErrInvalid) || errors.Is(err, lockstep.ErrDuplicate), err)
		default:
			c := drawn(l, rand.New(rand.NewPCG(uint64(len(data)), 14)), 9)
			var r Result
			require.NoError(t, l.Run(&c, &r))
			requireSame(t, l, &c, &r)
			stage := int(data[0]) % l.Stages()
			got, err := r.AppendSlowed(nil, stage, 500, 1300, 2000)
			require.NoError(t, err)
			for i, x := range []Factor{500, 1300, 2000} {
				require.Equal(t, plainSlowed(t, l, &c, stage, x), got[i])
			}
			back, ok := decode(encode(Config{Stages: cfg.Stages, Micros: cfg.Micros, Replicas: cfg.Replicas, Orders: orders(l)}))
			require.True(t, ok)
			require.Equal(t, orders(l), filled(back.Orders))
		}
	})
}

// filled is orders with empty rows in place of nil ones.
func filled(of [][]Op) [][]Op {
	for i := range of {
		if of[i] == nil {
			of[i] = []Op{}
		}
	}
	return of
}
