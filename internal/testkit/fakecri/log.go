package fakecri

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// logFile is a container's log in the CRI format. A nil logFile does nothing.
type logFile struct {
	path string
	mu   sync.Mutex
	f    *os.File
}

func (l *logFile) open() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// containerd makes the directories, too.
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return fmt.Errorf("failed to create container loggers: %w", err)
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("failed to create container loggers: %w", err)
	}
	l.f = f
	return nil
}

func (l *logFile) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		_ = l.f.Close()
		l.f = nil
	}
}

func (l *logFile) write(line LogLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return
	}
	stream := "stdout"
	if line.Stderr {
		stream = "stderr"
	}
	fmt.Fprintf(l.f, "%s %s F %s\n", time.Now().Format(time.RFC3339Nano), stream, line.Text)
}
