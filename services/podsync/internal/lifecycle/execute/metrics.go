package execute

import "github.com/prometheus/client_golang/prometheus"

// metrics are the counts of an Executor; nil counts nothing.
type metrics struct {
	requested, succeeded, failed prometheus.Counter // mounts of image volumes
}

func newMetrics(r prometheus.Registerer) *metrics {
	if r == nil {
		return nil
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	return &metrics{
		requested: counter("kubelet_image_volume_requested_total", "Number of requested image volumes."),
		succeeded: counter("kubelet_image_volume_mounted_succeed_total", "Number of successful image volume mounts."),
		failed:    counter("kubelet_image_volume_mounted_errors_total", "Number of failed image volume mounts."),
	}
}

// mounted counts the image volumes of a container that was made, or was not.
func (m *metrics) mounted(volumes int, err error) {
	if m == nil || volumes == 0 {
		return
	}
	m.requested.Add(float64(volumes))
	if err != nil {
		m.failed.Add(float64(volumes))
		return
	}
	m.succeeded.Add(float64(volumes))
}
