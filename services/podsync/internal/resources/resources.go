// Package resources maps requests and limits to what the kernel takes: cpu
// shares and quotas, memory limits, huge pages and OOM scores.
//
// It is pure: it must never do I/O.
package resources

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	minShares     = 2
	maxShares     = 262144
	sharesPerCPU  = 1024
	milliPerCPU   = 1000
	minQuota      = 1000
	defaultPeriod = 100_000
)

// Shares are the cpu.shares of a request.
func Shares(milliCPU int64) uint64 {
	if milliCPU <= 0 {
		return minShares
	}
	return uint64(min(max(milliCPU*sharesPerCPU/milliPerCPU, minShares), maxShares))
}

// Quota is the cpu.cfs_quota_us of a limit; zero means none. A zero period is 100 ms.
func Quota(milliCPU int64, periodMicros uint64) int64 {
	if milliCPU <= 0 {
		return 0
	}
	if periodMicros == 0 {
		periodMicros = defaultPeriod
	}
	return max(milliCPU*int64(periodMicros)/milliPerCPU, minQuota)
}

// Request is what a container asks for, its limit standing in for a request
// that is not set.
func Request(c *v1.Container, name v1.ResourceName) resource.Quantity {
	if q, ok := c.Resources.Requests[name]; ok {
		return q
	}
	return c.Resources.Limits[name]
}

// PageSize is a huge page resource's size as the kernel's files name it: 2MB, 1GB.
func PageSize(name v1.ResourceName) (string, error) {
	unit, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
	if !ok {
		return "", fmt.Errorf("%s is not a huge page resource", name)
	}
	q, err := resource.ParseQuantity(unit)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return PageSizeName(q.Value()), nil
}

// PageSizeName is a page size in bytes as the kernel's files name it.
func PageSizeName(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	i := 0
	for bytes >= 1024 && bytes%1024 == 0 && i < len(units)-1 {
		bytes /= 1024
		i++
	}
	return fmt.Sprintf("%d%s", bytes, units[i])
}
