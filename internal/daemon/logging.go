package daemon

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/rpcerr"
)

// Logging is what a process logs and how.
type Logging struct {
	// Format is "text" (klog's lines) or "json" (one object per line, with the
	// keys that Kubernetes uses). Empty is text.
	Format string
	// Verbosity is klog's -v.
	Verbosity int32
	// VModule is klog's -vmodule: "file=level,…"; text format only.
	VModule string
	// Out takes the lines; standard error when nil.
	Out io.Writer
}

// logState is klog's process-wide state, which cannot be read back from klog.
var logState struct {
	sync.Mutex
	verbosity int32
	level     slog.LevelVar
}

// InitLogging sets klog, and with it every contextual logger of the process.
// It is called once, before anything logs.
func InitLogging(l Logging) error {
	if l.Out == nil {
		l.Out = os.Stderr
	}
	switch l.Format {
	case "", "text":
		klog.SetOutput(l.Out)
		klog.SetLogFilter(redactor{})
		if err := setKlogFlag("logtostderr", strconv.FormatBool(l.Out == os.Stderr)); err != nil {
			return err
		}
	case "json":
		klog.SetSlogLogger(slog.New(slog.NewJSONHandler(l.Out, &slog.HandlerOptions{
			Level: &logState.level, ReplaceAttr: kubernetesKeys,
		})))
	default:
		return fmt.Errorf("logging format %q: %w: use text or json (--logging-format, logging.format)", l.Format, rpcerr.ErrInvalid)
	}
	if l.VModule != "" {
		if err := setKlogFlag("vmodule", l.VModule); err != nil {
			return err
		}
	}
	_, err := SetVerbosity(l.Verbosity)
	return err
}

// SetVerbosity changes klog's -v at once and returns what it was.
func SetVerbosity(v int32) (previous int32, err error) {
	if v < 0 {
		return 0, fmt.Errorf("log verbosity %d: %w: use 0 or more", v, rpcerr.ErrInvalid)
	}
	logState.Lock()
	defer logState.Unlock()
	if err := setKlogFlag("v", strconv.Itoa(int(v))); err != nil {
		return 0, err
	}
	logState.level.Set(slog.Level(-v))
	previous, logState.verbosity = logState.verbosity, v
	return previous, nil
}

// setKlogFlag goes through klog's flags, its only way of being configured.
func setKlogFlag(name, value string) error {
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	klog.InitFlags(fs)
	if err := fs.Set(name, value); err != nil {
		return fmt.Errorf("set log option %s to %q: %w", name, value, err)
	}
	return nil
}

// kubernetesKeys leaves out what no log may have, and gives slog's built-in keys the
// names that log collectors know from Kubernetes' JSON logs.
func kubernetesKeys(groups []string, a slog.Attr) slog.Attr {
	a = redactAttr(a)
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.TimeKey:
		return slog.Float64("ts", float64(a.Value.Time().UnixMicro())/1000)
	case slog.LevelKey:
		level, _ := a.Value.Any().(slog.Level)
		if level >= slog.LevelError {
			return slog.Int("v", 0)
		}
		return slog.Int("v", int(-level))
	}
	return a
}

// loggerFrom is the logger of ctx, for code that runs before a Daemon is made.
func loggerFrom(ctx context.Context) logr.Logger { return klog.FromContext(ctx) }
