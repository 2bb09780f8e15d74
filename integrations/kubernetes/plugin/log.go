package plugin

import (
	"maps"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// logger returns a logger whose entries go to log: from Warn on always, decisions at
// verbosity 2, the rest at 4.
func logger(log klog.Logger) *zap.Logger { return zap.New(sink{log: log}) }

// sink writes entries to a klog.Logger.
type sink struct {
	log    klog.Logger
	fields []zapcore.Field
}

func (s sink) level(l zapcore.Level) klog.Logger {
	switch {
	case l >= zapcore.WarnLevel:
		return s.log
	case l == zapcore.InfoLevel:
		return s.log.V(2)
	}
	return s.log.V(4)
}

func (s sink) Enabled(l zapcore.Level) bool { return s.level(l).Enabled() }

func (s sink) With(fields []zapcore.Field) zapcore.Core {
	s.fields = append(s.fields[:len(s.fields):len(s.fields)], fields...)
	return s
}

func (s sink) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if s.Enabled(e.Level) {
		return c.AddCore(e, s)
	}
	return c
}

func (s sink) Write(e zapcore.Entry, fields []zapcore.Field) error {
	enc := zapcore.NewMapObjectEncoder()
	for _, list := range [...][]zapcore.Field{s.fields, fields} {
		for i := range list {
			list[i].AddTo(enc)
		}
	}
	keys := make([]any, 0, 2*len(enc.Fields))
	for k, v := range maps.All(enc.Fields) { // a log line's fields are in any order
		keys = append(keys, k, v)
	}
	if e.Level >= zapcore.ErrorLevel {
		s.log.Error(nil, e.Message, keys...)
	} else {
		s.level(e.Level).Info(e.Message, keys...)
	}
	return nil
}

func (s sink) Sync() error { return nil }
