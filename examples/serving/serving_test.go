package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/serving"
)

// config is a door of up to four replicas.
func config() doorConfig {
	curve := serving.Linear{Base: 35 * time.Millisecond, Each: 5 * time.Millisecond} // that of squares
	return doorConfig{name: "door", infer: squares, curve: curve, batch: batch, min: 1, max: 4, slo: 200 * time.Millisecond, load: load}
}

// behind opens a door without a network.
func behind(t *testing.T, c doorConfig) *site {
	t.Helper()
	d, err := newDoor(c)
	require.NoError(t, err)
	d.group.Go(d.loop)
	return &site{door: d, tally: tally{slo: c.slo}}
}

// ride has the requests of the default flags served in virtual time, without a network, and checks the books.
func ride(t *testing.T, c doorConfig) *site {
	t.Helper()
	o, err := parse(nil, io.Discard)
	require.NoError(t, err)
	s := behind(t, c)
	start, starting := time.Now(), 0
	for i, at := range o.times() {
		time.Sleep(time.Until(start.Add(at)))
		starting = max(starting, s.state().starting)
		s.clients.Go(func() {
			from := time.Now()
			a, err := s.submit(t.Context(), i)
			if err == nil && a.refused == "" && a.output != i*i {
				err = errors.New("the answer to another request")
			}
			s.tally.note(time.Since(from), a.refused != "", err)
		})
	}
	s.clients.Wait()
	require.NoError(t, s.close())
	require.NoError(t, s.check(len(o.times())))
	require.Empty(t, s.there())
	require.Equal(t, c.min < c.max, starting > 0)
	return s
}

func TestBatchesAndReplicasAreWorthIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		single, few, many := config(), config(), config()
		single.batch = 1
		few.min, few.max = 2, 2
		many.min = many.max
		scaled, least, most := ride(t, config()), ride(t, few), ride(t, many)
		share := func(s *site) float64 { _, share := s.tally.inTime(); return share }
		require.Greater(t, share(scaled), share(ride(t, single))+.2)
		require.Greater(t, share(scaled), share(least)+.1)
		require.Less(t, scaled.books.cost, most.books.cost*8/10)
		require.Equal(t, 1, scaled.books.least)
		require.Equal(t, 4, scaled.books.most)
		require.EqualValues(t, 1, share(most))
		require.LessOrEqual(t, scaled.tally.quantile(1), int64(160), "in time by the curve, with what is left for the network")
	})
}

func TestClientThatIsGoneIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config()
		c.max = 1
		s := behind(t, c)
		time.Sleep(time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		s.clients.Go(func() {
			_, err := s.submit(ctx, 1) // a replica is at it when the client leaves
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
		time.Sleep(10 * time.Millisecond)
		s.clients.Go(func() {
			_, err := s.submit(ctx, 2) // it waits
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
		s.clients.Go(func() {
			a, err := s.submit(t.Context(), 3)
			require.NoError(t, err)
			require.Equal(t, 9, a.output)
		})
		s.clients.Wait()
		require.NoError(t, s.close())
		require.Equal(t, books{arrived: 3, answered: 2, canceled: 1, batches: 2, batched: 2, largest: 1, least: 1, most: 1, cost: s.books.cost}, s.books)
	})
}

func TestReplicaThatStartsCanBeCalledOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := behind(t, config())
		s.tell(func(now time.Time) {
			s.scaler = nil // which would call it off itself
			s.start(now, time.Hour)
		})
		time.Sleep(time.Second)
		require.Equal(t, 1, s.state().starting)
		began := time.Now()
		require.NoError(t, s.close())
		require.Less(t, time.Since(began), time.Second)
		require.Equal(t, 2*time.Second, s.books.cost)
	})
}

func TestReplicaThatDrainsFinishesItsBatchAndGetsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config()
		c.min, c.max = 2, 2
		s := behind(t, c)
		time.Sleep(time.Millisecond)
		ask := func(number int) {
			a, err := s.submit(t.Context(), number)
			require.NoError(t, err)
			require.Equal(t, number*number, a.output)
		}
		s.clients.Go(func() { ask(1) })
		time.Sleep(10 * time.Millisecond)
		s.tell(func(now time.Time) { s.drain(now, s.replicas[0]) })
		n := s.state()
		require.Equal(t, []int{1, 1, 0}, []int{n.ready, n.running, int(n.cost)}, "it is not done")
		s.clients.Wait()
		synctest.Wait()
		require.Equal(t, 46*time.Millisecond, s.state().cost, "it was held for 5 ms, ran for 40, and is gone")
		ask(2)
		require.NoError(t, s.close())
		require.Equal(t, 2, s.books.batches)
	})
}

func TestErrorEndsTheDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := behind(t, config())
		wrong := errors.New("wrong")
		s.clients.Go(func() {
			_, err := s.submit(t.Context(), 1)
			require.Error(t, err)
		})
		synctest.Wait()
		s.tell(func(time.Time) { s.note(wrong) })
		require.ErrorIs(t, s.close(), wrong) // waits for the replicas
		s.clients.Wait()
		_, err := s.submit(t.Context(), 1)
		require.Error(t, err)
		require.Error(t, s.check(1))
	})
}

// Requests that wait when the door closes are answered, and nobody else is let in.
func TestDoorThatClosesAnswersThoseInside(t *testing.T) {
	c := config()
	gate := make(chan struct{})
	c.infer = func(inputs []int) []int { <-gate; return squares(inputs) }
	c.slo = time.Hour
	sites, err := open(c)
	require.NoError(t, err)
	s := sites[0]
	const inside = 11
	require.Equal(t, inside, play(t.Context(), sites, make([]time.Duration, inside)))
	done := make(chan error)
	go func() { done <- s.shut(inside) }()
	for {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			break
		}
		require.NoError(t, conn.Close())
	}
	close(gate)
	require.NoError(t, <-done)
	require.NoError(t, s.check(inside))
	require.Equal(t, inside, s.left)
	require.Len(t, s.tally.took, inside)
}

func TestOnlyWholeNumbersAreAnswered(t *testing.T) {
	s := behind(t, config())
	for body, status := range map[string]int{"": 400, "x": 400, "1.5": 400, strings.Repeat("1", 1000): 400, "-12": 200} { // each by itself
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		require.Equal(t, status, w.Code, body)
		if status == 200 {
			require.Equal(t, "144", w.Body.String())
		}
	}
	require.NoError(t, s.close())
}

// canceler ends a run once something was printed.
type canceler struct {
	text   strings.Builder
	at     string
	cancel func()
}

func (c *canceler) Write(b []byte) (int, error) {
	n, err := c.text.Write(b)
	if strings.Contains(c.text.String(), c.at) {
		c.cancel()
	}
	return n, err
}

func TestRunAddsUpAndDraws(t *testing.T) {
	file := filepath.Join(t.TempDir(), "latency.html")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-for", "500ms", "-check", "-out", file}, &out))
	require.Contains(t, out.String(), "/s | autoscaled ")
	require.Contains(t, out.String(), "check: each of ")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(string(text), "<h2>"))
	for _, foreign := range []string{"http", "src=", "url(h", "import"} {
		require.NotContains(t, string(text), foreign, "the page fetches nothing")
	}
}

func TestInterruptedItLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := canceler{at: "| autoscaled", cancel: cancel}
	require.NoError(t, run(ctx, []string{"-for", "1m", "-check"}, &out)) // checks goroutines and listeners, too
	require.Contains(t, out.text.String(), "check: each of ")
	o, err := parse([]string{"-for", "1m"}, io.Discard)
	require.NoError(t, err)
	require.NotContains(t, out.text.String(), fmt.Sprint(len(o.times()), " requests"), "it goes on to the end")
}

func TestViewIsWrittenOverTheOneBefore(t *testing.T) {
	s := behind(t, config())
	o, err := parse(nil, io.Discard)
	require.NoError(t, err)
	first, next := frame(o, []*site{s}, 0, true, true), frame(o, []*site{s}, time.Second, true, false)
	require.Equal(t, 2, strings.Count(first, "\n"))
	require.True(t, strings.HasPrefix(next, "\x1b[2A\r\x1b[K"), "%q", next)
	require.NoError(t, s.close())
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"x"},
		{"-calm", "0"},
		{"-burst", "NaN"},
		{"-burst", "20"},
		{"-burst", "1001"},
		{"-for", "0s"},
		{"-slo", "1ms"},
		{"-fixed", "5"},
		{"-replicas", "0"},
		{"-replicas", "41"},
		{"-nope"},
	} {
		require.Error(t, run(t.Context(), args, io.Discard), "%v", args)
	}
}
