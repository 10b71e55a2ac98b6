package instance

import "testing"

func TestWhoLivesInAPIDNamespaceThatIsNotSeenIsNotTakenForDead(t *testing.T) {
	const theirs = "pid:[4026532000]"
	for _, tc := range []struct {
		name       string
		ours       string
		seen, want bool
	}{
		{"from the machine's, with a process in theirs", machines, true, true},
		{"from the machine's, with nobody in theirs", machines, false, false},
		{"from another, which sees none but its own", "pid:[4026532001]", false, true},
	} {
		got := livesElsewhere(theirs, tc.ours, func(ns string) bool { return ns == theirs && tc.seen })
		if got != tc.want {
			t.Errorf("%s: alive = %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestAnInstanceOfAPIDNamespaceThatHasEndedIsStale(t *testing.T) {
	at(t)
	i, err := Named("gone", false)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Release()
	if !i.ownerAlive() {
		t.Error("this process is taken for dead")
	}
	if ours, err := namespaceOf("self"); err != nil || ours != machines {
		t.Skip("this is not the machine's PID namespace", ours, err)
	}
	i.OwnerNamespace = "pid:[1]"
	if i.ownerAlive() {
		t.Error("who lived in a PID namespace that is no more is taken for alive")
	}
}
