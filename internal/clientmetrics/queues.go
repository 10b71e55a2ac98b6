package clientmetrics

import (
	"errors"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// queues implements workqueue.MetricsProvider; the label is the queue's name.
type queues struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	queued, worked             *prometheus.HistogramVec
}

var _ workqueue.MetricsProvider = (*queues)(nil)

// RegisterQueues is Register for a process that asks no apiserver: its queues alone.
func RegisterQueues(r prometheus.Registerer) error {
	queues := newQueues()
	var errs []error
	for _, c := range queues.collectors() {
		errs = append(errs, r.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	workqueue.SetProvider(queues)
	return nil
}

func newQueues() *queues {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"name"})
	}
	return &queues{
		depth:      gauge("workqueue_depth", "Length of the queue."),
		unfinished: gauge("workqueue_unfinished_work_seconds", "Seconds of work that is under way and not counted in work_duration yet; large values are stuck threads."),
		longest:    gauge("workqueue_longest_running_processor_seconds", "Seconds that the longest running processor has been running."),
		adds:       counter("workqueue_adds_total", "Number of items that were added to the queue.", "name"),
		retries:    counter("workqueue_retries_total", "Number of items that were put back.", "name"),
		queued:     histogram("workqueue_queue_duration_seconds", "Seconds that an item stays in the queue.", queueing, "name"),
		worked:     histogram("workqueue_work_duration_seconds", "Seconds that an item takes.", queueing, "name"),
	}
}

func (q *queues) collectors() []prometheus.Collector {
	return []prometheus.Collector{q.depth, q.unfinished, q.longest, q.adds, q.retries, q.queued, q.worked}
}

func (q *queues) NewDepthMetric(name string) workqueue.GaugeMetric {
	return q.depth.WithLabelValues(name)
}

func (q *queues) NewAddsMetric(name string) workqueue.CounterMetric {
	return q.adds.WithLabelValues(name)
}

func (q *queues) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return q.queued.WithLabelValues(name)
}

func (q *queues) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return q.worked.WithLabelValues(name)
}

func (q *queues) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return q.unfinished.WithLabelValues(name)
}

func (q *queues) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return q.longest.WithLabelValues(name)
}

func (q *queues) NewRetriesMetric(name string) workqueue.CounterMetric {
	return q.retries.WithLabelValues(name)
}

// untilSeconds is how long it is until at; +Inf for never.
func untilSeconds(at *time.Time) float64 {
	if at == nil {
		return math.Inf(1)
	}
	return time.Until(*at).Seconds()
}
