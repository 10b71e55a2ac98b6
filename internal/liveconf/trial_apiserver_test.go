package liveconf

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/kubeletconfig"
)

// awayWhile has services lack the apiserver while away says so.
func (f *fakeNode) awayWhile(away *bool, only string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lacks = func(service string, _ *kubeletconfig.Loaded) map[string]string {
		if *away && (only == "" || only == service) {
			return map[string]string{"apiserver": "connection refused", "lease": "not renewed"}
		}
		return nil
	}
}

func TestAnApiserverThatIsAwayCondemnsNoChange(t *testing.T) {
	for _, knows := range []bool{true, false} {
		onNode(t, func(t *testing.T, f *fakeNode) {
			away := true
			if knows {
				f.controller.cfg.Answers = func(context.Context) error {
					f.mu.Lock()
					defer f.mu.Unlock()
					if away {
						return errors.New("connection refused")
					}
					return nil
				}
			}
			f.write("maxPods: 105\n")
			f.after(10 * time.Second) // it was there before
			f.awayWhile(&away, "")
			if l, state, _ := f.after(time.Hour); l.Config.MaxPods != 105 || state.Phase != Trying || !f.said("until the apiserver answers again") {
				t.Errorf("knows %v: while it is away: %d pods, %+v", knows, l.Config.MaxPods, state)
			}
			f.mu.Lock()
			away = false
			f.mu.Unlock()
			if _, state, _ := f.after(40 * time.Second); state.Phase != Trying {
				t.Errorf("knows %v: good without the whole deadline: %+v", knows, state)
			}
			if l, state, _ := f.after(time.Minute); l.Config.MaxPods != 105 || state.Phase != Good {
				t.Errorf("knows %v: when it is back: %d pods, %+v", knows, l.Config.MaxPods, state)
			}
		})
	}
}

func TestAChangeThatKeepsAServiceFromTheApiserverGoesBack(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.controller.cfg.Answers = func(context.Context) error { return nil }
		f.lacks = func(service string, l *kubeletconfig.Loaded) map[string]string {
			if service == "podsync" && l.Config.MaxPods == 105 {
				return map[string]string{"apiserver": "unsupported media type"}
			}
			return nil
		}
		f.write("maxPods: 105\n")
		if l, state, _ := f.after(2 * time.Minute); l.Config.MaxPods != 100 || state.Phase != WentBack || !strings.Contains(state.Error, "unsupported media type") {
			t.Errorf("%d pods, %+v", l.Config.MaxPods, state)
		}
	})
}

// Kubernetes itself approves no serving certificate, and whoever does may do so tomorrow; a
// node that joins another cluster with a new configuration waits for a person, too.
func TestACertificateThatIsWaitedForCondemnsNoChange(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.controller.cfg.Answers = func(context.Context) error { return nil }
		f.lacks = func(service string, l *kubeletconfig.Loaded) map[string]string {
			if service == "nodestatus" && l.Config.MaxPods == 105 {
				return map[string]string{"serving CSR": "waits for the approval of CSR node-csr-x"}
			}
			return nil
		}
		f.write("maxPods: 105\n")
		if l, state, _ := f.after(3 * time.Minute); l.Config.MaxPods != 105 || state.Phase != Good {
			t.Errorf("%d pods, %+v", l.Config.MaxPods, state)
		}
	})
}

func TestAChangeWithWhichNoCertificateCanBeAskedForGoesBack(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.controller.cfg.Answers = func(context.Context) error { return nil }
		f.lacks = func(service string, l *kubeletconfig.Loaded) map[string]string {
			if service == "nodestatus" && l.Config.MaxPods == 105 {
				return map[string]string{"serving CSR": "no new serving certificate: permission denied: give --cert-dir /pki to the user of nodestatus"}
			}
			return nil
		}
		f.write("maxPods: 105\n")
		if l, state, _ := f.after(3 * time.Minute); l.Config.MaxPods != 100 || state.Phase != WentBack || !strings.Contains(state.Error, "permission denied") {
			t.Errorf("%d pods, %+v", l.Config.MaxPods, state)
		}
	})
}

// kubeadm reset and join under an agent that cannot be stopped bring another configuration,
// and those that start with it have no credential until somebody has approved.
func TestANodeThatJoinsAnotherClusterKeepsItsNewConfiguration(t *testing.T) {
	for _, before := range []bool{true, false} { // the files of the first cluster had been removed before
		onNode(t, func(t *testing.T, f *fakeNode) {
			f.controller.cfg.Answers = func(context.Context) error { return nil }
			joined := false
			f.lacks = func(service string, l *kubeletconfig.Loaded) map[string]string {
				switch {
				case joined, service != "nodestatus" && service != "podsync":
				case l.Config.MaxPods == 105:
					return map[string]string{"credential": "the node has no client certificate yet", "apiserver": "no credential for the apiserver"}
				case before:
					return map[string]string{"credential": "there is no kubeconfig"}
				}
				return nil
			}
			f.write("maxPods: 105\n")
			if l, state, _ := f.after(time.Hour); l.Config.MaxPods != 105 || state.Phase != Trying {
				t.Errorf("before %v: while it waits: %d pods, %+v", before, l.Config.MaxPods, state)
			}
			f.mu.Lock()
			joined = true
			f.mu.Unlock()
			if l, state, _ := f.after(2 * time.Minute); l.Config.MaxPods != 105 || state.Phase != Good {
				t.Errorf("before %v: when it has joined: %d pods, %+v", before, l.Config.MaxPods, state)
			}
		})
	}
}

func TestAnApiserverThatIsAwayHidesNothingElse(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.lacks = func(service string, l *kubeletconfig.Loaded) map[string]string {
			if service == "podsync" && l.Config.MaxPods == 105 {
				return map[string]string{"apiserver": "connection refused", "runtime": "no answer"}
			}
			return nil
		}
		f.write("maxPods: 105\n")
		if l, state, _ := f.after(2 * time.Minute); l.Config.MaxPods != 100 || state.Phase != WentBack || !strings.Contains(state.Error, "runtime") {
			t.Errorf("%d pods, %+v", l.Config.MaxPods, state)
		}
	})
}

func TestAServiceThatDoesNotRunCondemnsNoChange(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.missing = "nodestatus" // whose unit is not enabled
		f.write("maxPods: 105\n")
		if l, state, _ := f.after(3 * time.Minute); l.Config.MaxPods != 105 || state.Phase != Good {
			t.Errorf("%d pods, %+v", l.Config.MaxPods, state)
		}
	})
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.write("maxPods: 105\n")
		f.after(time.Second)
		f.mu.Lock()
		f.missing = "nodestatus" // which it is since the change
		f.mu.Unlock()
		if l, state, _ := f.after(3 * time.Minute); l.Config.MaxPods != 100 || state.Phase != WentBack || !strings.Contains(state.Error, "nodestatus does not answer") {
			t.Errorf("%d pods, %+v", l.Config.MaxPods, state)
		}
	})
}
