package criconfig

import (
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestSwapIsLimitedAsTheVersionOfCgroupsCan(t *testing.T) {
	for name, tc := range map[string]struct {
		machine       *machine
		memory, bytes int64
		want          string
	}{
		"v2 without swap for the container":       {&machine{unified: true, swap: true}, 100, 0, "both 0, unified map[memory.swap.max:0]"},
		"v2 with some":                            {&machine{unified: true, swap: true}, 100, 50, "both 0, unified map[memory.swap.max:50]"},
		"v2 whose kernel cannot":                  {&machine{unified: true}, 100, 50, "both 0, unified map[]"},
		"v1 limits memory and swap to the memory": {&machine{swap: true}, 100, 0, "both 100, unified map[]"},
		"v1 cannot where the memory has no limit": {&machine{swap: true}, 0, 0, "both 0, unified map[]"},
		"v1 whose kernel does not account for it": {&machine{}, 100, 0, "both 0, unified map[]"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: tc.memory}
			tc.machine.limitSwap(r, tc.bytes)
			if got := fmt.Sprintf("both %d, unified %v", r.MemorySwapLimitInBytes, r.Unified); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}
