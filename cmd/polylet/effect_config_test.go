package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/services/nodestatus"
)

func TestSettingsWithoutEffectAreInTheConfigurationAndInAnEvent(t *testing.T) {
	loaded := loadedWith(t, "--housekeeping-interval=3s", "--volume-plugin-dir=/x")
	var out bytes.Buffer
	if err := showConfig(&out, &commonv1.GetConfigResponse{KubeletConfigurationJson: loaded.ConfigzJSON(), WithoutEffect: withoutEffect(loaded)()}, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nNot as it says:\n", "  volumePluginDir: \"/x\" has no effect yet: ", "  --housekeeping-interval: 3s has no effect: containers are measured"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	events := withoutEffectEvent(loaded)
	if len(events) != 1 || events[0].Type != "Warning" || events[0].Reason != "ConfigurationWithoutEffect" || !strings.Contains(events[0].Message, "volumePluginDir") {
		t.Errorf("events %+v", events)
	}
}

func TestDefaultsThatNobodySetAreNoWarningOnEachNode(t *testing.T) {
	plain := loadedWith(t)
	if events := withoutEffectEvent(plain); len(events) > 0 {
		t.Errorf("a node without a configuration warns: %+v", events)
	}
	events := withoutEffectEvent(loadedWith(t, "--volume-plugin-dir=/x", "--topology-manager-policy=restricted"))
	if len(events) != 1 || !strings.Contains(events[0].Message, "topologyManagerPolicy, volumePluginDir;") {
		t.Errorf("what flags set: %+v", events)
	}
}

func TestTheGatewaysCopiesAreNoOtherConfiguration(t *testing.T) {
	podsync := withoutFiles(loadedWith(t, "--client-ca-file=/etc/ca.crt", "--max-pods=7").ConfigzJSON())
	copies := []string{"--client-ca-file=/run/polylet/gateway/client-ca.crt", "--tls-cert-file=/run/polylet/gateway/tls.crt", "--tls-private-key-file=/run/polylet/gateway/tls.key"}
	if gateway := withoutFiles(loadedWith(t, append(copies, "--max-pods=7")...).ConfigzJSON()); !sameDocument(podsync, gateway) {
		t.Errorf("%s\nis said to be another than\n%s", gateway, podsync)
	}
	if other := withoutFiles(loadedWith(t, append(copies, "--max-pods=8")...).ConfigzJSON()); sameDocument(podsync, other) {
		t.Error("another number of pods is said to be the same configuration")
	}
}

// Whoever takes /configz, changes something and writes it down as the configuration has the
// gateway's copies in it otherwise, which are gone when it ends.
func TestTheGatewayShowsTheNodesFilesAndNotItsCopies(t *testing.T) {
	for _, said := range [][]string{{"--max-pods=7"}, {"--max-pods=7", "--client-ca-file=/etc/ca.crt", "--tls-cert-file=/etc/tls.crt", "--tls-private-key-file=/etc/tls.key"}} {
		node := loadedWith(t, said...)
		raw, err := json.Marshal(kubeletconfig.NewSlice(node, 1, "sha256:x", false))
		if err != nil {
			t.Fatal(err)
		}
		copies := []string{"--client-ca-file=/run/polylet/gateway/client-ca.crt", "--tls-cert-file=/run/polylet/gateway/tls.crt", "--tls-private-key-file=/run/polylet/gateway/tls.key"}
		cfg, err := gatewayConfig(loadedWith(t, append(append(said, "--config-slice="+written(t, "slice.json", string(raw))), copies...)...))
		if err != nil {
			t.Fatal(err)
		}
		if cfg.CertFile != "/run/polylet/gateway/tls.crt" || cfg.ClientCAFile != "/run/polylet/gateway/client-ca.crt" {
			t.Errorf("it does not use its copies but %s and %s", cfg.CertFile, cfg.ClientCAFile)
		}
		if shown := cfg.ConfigJSON(); !sameDocument(shown, node.ConfigzJSON()) {
			t.Errorf("it shows\n%s\nand the node has\n%s", shown, node.ConfigzJSON())
		}
	}
}

func TestAMachineWithOldCgroupsSaysSo(t *testing.T) {
	for v2, want := range map[bool]bool{true: false, false: true} {
		events := startEvents(loadedWith(t), v2)
		if got := slices.ContainsFunc(events, func(e nodestatus.Event) bool { return e.Type == "Warning" && e.Reason == "CgroupV1" }); got != want {
			t.Errorf("cgroup v2 %v: events %+v", v2, events)
		}
	}
}

func TestHeadersAreNotShownOnATerminal(t *testing.T) {
	loaded := loadedWith(t, "--manifest-url-header=A:secret,A:other")
	if shown := string(maskSecrets(loaded.SecretConfigzJSON())); strings.Contains(shown, "secret") || !sameDocument([]byte(shown), loaded.ConfigzJSON()) {
		t.Errorf("shown %s", shown)
	}
}

func TestTheEventAboutTheConfigurationIsBounded(t *testing.T) {
	var many []kubeletconfig.Notice
	for range 200 {
		many = append(many, kubeletconfig.Notice{Setting: "aSettingOfSomeLength"})
	}
	if text := lackSummary(many); len(text) > longestMessage || !strings.Contains(text, " more; polylet config says why") {
		t.Errorf("%d characters: %s", len(text), text)
	}
	if text := lackSummary(nil); text != "" {
		t.Errorf("nothing to say and %q", text)
	}
}
