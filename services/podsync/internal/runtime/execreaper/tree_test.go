package execreaper

import (
	"slices"
	"testing"
)

func numbers(list []Process) (out []int) {
	for _, p := range list {
		out = append(out, p.PID)
	}
	slices.Sort(out)
	return out
}

func TestACommandHasAParentOutsideItsContainer(t *testing.T) {
	const shim = 10
	for name, c := range map[string]struct {
		all  []Process
		want []int
	}{
		"a pod of the usual kind": {[]Process{
			{PID: 20, Parent: shim, SID: 20, Start: 1, First: true, Level: 2, ParentLevel: 1},
			{PID: 21, Parent: 20, SID: 20, Start: 2, Level: 2, ParentLevel: 2},   // a child
			{PID: 22, Parent: 20, SID: 22, Start: 3, Level: 2, ParentLevel: 2},   // an orphan
			{PID: 30, Parent: shim, SID: 30, Start: 4, Level: 2, ParentLevel: 1}, // a command
			{PID: 31, Parent: 30, SID: 30, Start: 5, Level: 2, ParentLevel: 2},   // its child
			{PID: 32, Parent: 30, SID: 30, Start: 5, Level: 3, ParentLevel: 2},   // of unshare --pid
			{PID: 40, Parent: shim, SID: 40, Start: 6, Level: 2, ParentLevel: 1, Zombie: true},
			{PID: 41, Parent: 999, SID: 41, Start: 7, Level: 2}, // whose parent has just ended
		}, []int{30}},
		"a pod whose containers share their processes": {[]Process{
			{PID: 20, Parent: shim, SID: 20, Start: 1, Level: 2, ParentLevel: 1}, // the container's own
			{PID: 22, Parent: 15, SID: 22, Start: 3, Level: 2, ParentLevel: 2},   // an orphan has the pause process
			{PID: 30, Parent: shim, SID: 30, Start: 4, Level: 2, ParentLevel: 1},
		}, []int{30}},
		"a pod on the host's processes": {[]Process{
			{PID: 20, Parent: shim, SID: 20, Start: 1, Level: 1, ParentLevel: 1},
			{PID: 22, Parent: shim, SID: 20, Start: 3, Level: 1, ParentLevel: 1}, // an orphan has the shim
			{PID: 30, Parent: shim, SID: 30, Start: 4, Level: 1, ParentLevel: 1},
			{PID: 31, Parent: 30, SID: 31, Start: 4, Level: 1, ParentLevel: 1},
		}, []int{30}},
		"nothing": {nil, nil},
	} {
		if got := numbers(roots(c.all, 1)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestWhatACommandHasStartedIsItsFamily(t *testing.T) {
	all := []Process{
		{PID: 20, Parent: 10, Start: 1},
		{PID: 30, Parent: 10, Start: 4},
		{PID: 31, Parent: 30, Start: 5},
		{PID: 32, Parent: 31, Start: 6},
		{PID: 33, Parent: 30, Start: 6, Zombie: true},
		{PID: 34, Parent: 20, Start: 6}, // it has another parent by now
	}
	for name, c := range map[string]struct {
		from []Process
		want []int
	}{
		"a command":                      {[]Process{{PID: 30, Start: 4}}, []int{30, 31, 32}},
		"a command and a child":          {[]Process{{PID: 30, Start: 4}, {PID: 31, Start: 5}}, []int{30, 31, 32}},
		"a number that is another's now": {[]Process{{PID: 30, Start: 3}}, nil},
		"what is left when it is gone":   {[]Process{{PID: 29, Start: 3}, {PID: 32, Start: 6}}, []int{32}},
	} {
		if got := numbers(family(all, c.from)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
