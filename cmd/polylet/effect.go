package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/services/nodestatus"
)

// longestMessage bounds an event's message; the API allows 1024 characters.
const longestMessage = 1000

// withConfiguration adds to a process what it says of its configuration: the one that
// it runs with, and what others have of it by now.
func withConfiguration(ctx context.Context, loaded *kubeletconfig.Loaded, o daemon.Options) daemon.Options {
	o.ConfigRuns = loaded.Runs
	if p := inPlaceOf(ctx); p != nil {
		o.ConfigRuns = p.runs
	}
	o.ConfigJSON = func() []byte { return loaded.Current().ConfigzJSON() }
	o.ConfigOrigins = func() map[string]string { return loaded.Current().Origins() }
	o.ConfigWithoutEffect = withoutEffect(loaded)
	return o
}

// withoutEffect are the settings that do not do what they say, a line for each.
func withoutEffect(loaded *kubeletconfig.Loaded) func() []string {
	return func() []string {
		var out []string
		for _, n := range loaded.Current().WithoutEffect() {
			out = append(out, n.String())
		}
		return out
	}
}

// sayWithoutEffect logs them and shows them beside what the process depends on;
// nothing waits for them.
func sayWithoutEffect(d *daemon.Daemon, loaded *kubeletconfig.Loaded) {
	notices := loaded.WithoutEffect()
	for _, n := range notices {
		d.Log().Info("A setting does not do what it says", "setting", n.Setting, "value", n.Value, "default", n.Default, "reason", n.Text)
	}
	if text := lackSummary(notices); text != "" {
		d.Health().Note("configuration", text)
	}
}

// withoutEffectEvent is the Node's event about them; none when there are none.
func withoutEffectEvent(loaded *kubeletconfig.Loaded) []nodestatus.Event {
	text := lackSummary(loaded.WithoutEffect())
	if text == "" {
		return nil
	}
	return []nodestatus.Event{{Type: v1.EventTypeWarning, Reason: "ConfigurationWithoutEffect", Message: text}}
}

// oldCgroups is what the kubelet says of a machine with cgroup v1.
const oldCgroups = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. " +
	"Please migrate to cgroup v2. More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"

// startEvents are those of the Node about how this process was started.
func startEvents(loaded *kubeletconfig.Loaded, cgroupV2 bool) []nodestatus.Event {
	out := withoutEffectEvent(loaded)
	if !cgroupV2 {
		out = append(out, nodestatus.Event{Type: v1.EventTypeWarning, Reason: "CgroupV1", Message: oldCgroups})
	}
	return out
}

// lackSummary names the settings that somebody has set; empty when there are
// none. Defaults are in the log and in polylet config: said of every node at
// every start, they would hide what is news.
func lackSummary(notices []kubeletconfig.Notice) string {
	notices = slices.DeleteFunc(slices.Clone(notices), func(n kubeletconfig.Notice) bool { return n.Default })
	if len(notices) == 0 {
		return ""
	}
	const tail = "; polylet config says why"
	text := "Settings without their effect: "
	for i, n := range notices {
		if i > 0 {
			text += ", "
		}
		if len(text)+len(n.Setting)+len(tail) > longestMessage-20 {
			return text + fmt.Sprintf("and %d more", len(notices)-i) + tail
		}
		text += n.Setting
	}
	return strings.ToValidUTF8(text, "") + tail
}
