package collector

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/polylet/polylet/services/stats/internal/disk"
)

// Walks counts how long it takes to measure volumes and log directories, and to have
// drivers measure theirs.
type Walks struct{ took *prometheus.HistogramVec }

// NewWalks registers the series on r; nil registers nowhere.
func NewWalks(r prometheus.Registerer) (*Walks, error) {
	w := &Walks{took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kubelet_volume_metric_collection_duration_seconds", Help: "[ALPHA] Duration in seconds to calculate volume stats, by what is asked: the filesystem, every file of a directory, a project quota (fsquota), or a driver, by its name.",
	}, []string{"metric_source"})}
	if r == nil {
		return w, nil
	}
	if err := r.Register(w.took); err != nil {
		return nil, fmt.Errorf("stats: register the metrics of measuring directories: %w", err)
	}
	return w, nil
}

// Took counts one measurement.
func (w *Walks) Took(d disk.Directory, took time.Duration) {
	source := "directory"
	switch {
	case d.Counted != (disk.Volume{}):
		source = "fsquota"
	case d.FilesystemOnly:
		source = "filesystem"
	}
	w.took.WithLabelValues(source).Observe(took.Seconds())
}

// Answered counts one answer of a volume's driver.
func (w *Walks) Answered(driver string, took time.Duration) {
	w.took.WithLabelValues(driver).Observe(took.Seconds())
}
