package node_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/liveconf"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/testkit/configgen"
	"github.com/polylet/polylet/internal/testkit/golden"
	"github.com/polylet/polylet/internal/testkit/selfsigned"
	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/node"
)

// observedFile is what docs/configuration.md says was observed of each field: it is only
// written by this test (make observed).
const observedFile = "../../docs/configuration-observed.txt"

// onMachine ends what depends on the machine, before the version of its cgroups.
const onMachine = "; on a machine with cgroup "

// TestEachFieldOfTheConfigurationDoesOnARunningNodeWhatItsRowSays changes fields of a
// running node, one after the other, and looks at what happens: to whom, and that pods do
// not notice. POLYLET_LONG_TESTS has it change all of them, POLYLET_TEST_FIELDS those that a
// regular expression finds (make observed writes what it sees), else it is some;
// POLYLET_TEST_SEED repeats which.
func TestEachFieldOfTheConfigurationDoesOnARunningNodeWhatItsRowSays(t *testing.T) {
	if onKubelet() {
		t.Skip("the kubelet reads its configuration when it starts, only")
	}
	whole, within := os.Getenv("POLYLET_LONG_TESTS") != "", testWithin
	if whole {
		within = 90 * time.Minute
	}
	overrides, own := map[string]any{
		"evictionSoft": map[string]any{"memory.available": "60Mi"}, "evictionSoftGracePeriod": map[string]any{"memory.available": "1m"},
	}, map[string]any{}
	o := newObserver(build(t, plan{
		supervised: true, flags: []string{"--config-deadline=4s"}, within: within, overrides: overrides,
		prepare: func(h *house) { h.valuesOfThisNode(overrides, own) },
	}))
	said, err := kubeletconfig.LoadAgain(o.node.Flags())
	o.must(err)
	fields, err := configgen.Fields(said.Fields(), own)
	o.must(err)
	switch wanted := os.Getenv("POLYLET_TEST_FIELDS"); {
	case wanted != "":
		of, err := regexp.Compile(wanted)
		o.must(err)
		fields = slices.DeleteFunc(fields, func(f configgen.Field) bool { return !of.MatchString(f.Path) })
	case !whole:
		fields = o.some(fields)
	}
	// The others may change what those need that a running node does not take.
	slices.SortStableFunc(fields, func(a, b configgen.Field) int { return fixedFirst(a) - fixedFirst(b) })
	for _, f := range fields {
		o.observe(f)
		o.Logf("%s: %s", f.Path, o.rows[f.Path])
	}
	for _, complaint := range o.guard.stop() {
		t.Error(complaint)
	}
	o.compare(said.Fields())
}

func fixedFirst(f configgen.Field) int {
	if configslice.Fixed()[f.Path] != "" {
		return 0
	}
	return 1
}

// valuesOfThisNode makes files, and other values of fields of which only this node knows.
func (h *house) valuesOfThisNode(overrides, own map[string]any) {
	h.Helper()
	file := func(name string, content []byte) string {
		path := h.inst.Path(name)
		h.must(os.WriteFile(path, content, 0o600))
		return path
	}
	cert, key := selfsigned.PEM(h.T, &x509.Certificate{NotAfter: time.Now().Add(24 * time.Hour)})
	overrides["tlsCertFile"], overrides["tlsPrivateKeyFile"] = file("a.crt", cert), file("a.key", key)
	own["tlsCertFile"], own["tlsPrivateKeyFile"] = file("b.crt", cert), file("b.key", key)
	for path, original := range map[string]string{"authentication.x509.clientCAFile": h.cluster.ClientCAFile(), "resolvConf": "/etc/resolv.conf"} {
		content, err := os.ReadFile(original)
		h.must(err)
		own[path] = file("b."+path, content)
	}
	own["imageServiceEndpoint"] = h.runtime.Endpoint()
	for _, path := range []string{"port", "readOnlyPort", "healthzPort"} {
		port, err := cluster.FreePort()
		h.must(err)
		own[path] = port
	}
}

// observer changes one field after the other.
type observer struct {
	*house
	guard      *sentinel
	containers map[string]string
	noticed    int
	document   map[string]any
	rows       map[string]string
}

func newObserver(h *house) *observer {
	h.Helper()
	names := []string{"bystander-0", "bystander-1"}
	for _, name := range names {
		h.create(webApp(name))
	}
	for _, name := range names {
		h.waitReady(name, 3*time.Minute)
	}
	o := &observer{house: h, rows: map[string]string{}, document: map[string]any{}}
	var err error
	o.containers, err = h.containerIDs()
	h.must(err)
	raw, err := os.ReadFile(h.node.ConfigFile)
	h.must(err)
	h.must(yaml.Unmarshal(raw, &o.document))
	h.awaitState("the first configuration is good", func(s liveconf.State) error {
		_, err := os.Stat(filepath.Join(h.node.RootDir, "polylet/configuration/last-known-good.json"))
		return err
	})
	o.guard = h.guard()
	return o
}

// some are a few fields of each kind.
func (o *observer) some(fields []configgen.Field) []configgen.Field {
	seed := uint64(numberOf(o.T, "POLYLET_TEST_SEED", int(time.Now().UnixNano()%1_000_000)+1)) //nolint:gosec // A test's.
	o.Logf("which fields: POLYLET_TEST_SEED=%d", seed)
	left := map[string]int{"fixed": 2, "in place": 1, "nobody": 4, "used": 6}
	random := rand.New(rand.NewPCG(seed, 13))
	var out []configgen.Field
	for _, i := range random.Perm(len(fields)) {
		f, kind := fields[i], "used"
		owners, _ := configslice.Owners(f.Path)
		switch {
		case fixedFirst(f) == 0:
			kind = "fixed"
		case slices.Contains(configslice.InPlace(), f.Path):
			kind = "in place"
		case len(owners) == 0:
			kind = "nobody"
		}
		if left[kind] > 0 && !f.Machine && f.Untried == "" {
			left[kind]--
			out = append(out, f)
		}
	}
	return out
}

// observe changes a field and writes down what happens.
func (o *observer) observe(f configgen.Field) {
	o.Helper()
	if f.Untried != "" {
		o.rows[f.Path] = "not tried: " + f.Untried
		return
	}
	was, from := o.document, o.document
	for path, value := range f.Before {
		from = configgen.Set(from, path, value)
	}
	if !reflect.DeepEqual(from, was) {
		o.put(f, from)
	}
	before, pids, shown := o.said(), o.steadyPIDs(), o.shown(f.Path)
	o.document = configgen.Set(from, f.Path, f.Value)
	state := o.put(f, o.document)
	o.rows[f.Path] = o.row(f, state, before, pids, shown)
	o.wantUnnoticed(f)
	if state.Phase != liveconf.Good || f.Back {
		if o.document = was; o.put(f, was).Phase != liveconf.Good {
			o.Fatalf("%s: the way back does not end", f.Path)
		}
	}
}

// put writes a document and waits until it is decided what becomes of it.
func (o *observer) put(f configgen.Field, document map[string]any) liveconf.State {
	o.Helper()
	text, err := yaml.Marshal(document)
	o.must(err)
	was, err := o.state()
	o.must(err)
	o.writeConfiguration(text)
	var now liveconf.State
	o.quietly(3*time.Minute, f.Path+" is decided", func() (err error) {
		now, err = o.state()
		return boolError(err == nil && now.Since.After(was.Since) && now.Phase != liveconf.Trying, "%+v %v", now, err)
	})
	return now
}

func (o *observer) state() (s liveconf.State, err error) {
	raw, err := os.ReadFile(filepath.Join(o.node.SocketDir, "nodestatus", "config-state.json"))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(raw, &s)
}

// said is what the files say; nil when that is nothing.
func (o *observer) said() *kubeletconfig.Loaded {
	said, err := kubeletconfig.LoadAgain(o.node.Flags())
	if err != nil {
		return nil
	}
	return said
}

// steadyPIDs are the five processes once all are there.
func (o *observer) steadyPIDs() map[string]int {
	o.Helper()
	pids := map[string]int{}
	o.quietly(time.Minute, "the five run", func() error {
		for _, name := range node.Services() {
			pid, err := childOf(o.node.Processes["run"].Pid(), name)
			if err != nil {
				return err
			}
			pids[name] = pid
		}
		return nil
	})
	return pids
}

// row says what has happened.
func (o *observer) row(f configgen.Field, state liveconf.State, before *kubeletconfig.Loaded, pids map[string]int, shown string) string {
	o.Helper()
	var again, inPlace []string
	now := o.steadyPIDs()
	for _, name := range service.ServersFirst() {
		switch {
		case now[name] != pids[name]:
			again = append(again, name)
		case o.generation(name) == state.Generation:
			inPlace = append(inPlace, name)
		}
	}
	what := map[liveconf.Phase]string{liveconf.Good: "", liveconf.WentBack: "went back; "}
	text, known := what[state.Phase]
	after := o.said()
	switch {
	case state.Phase == liveconf.Good && after != nil:
		o.follow(after)
		o.wantOwners(f, configslice.Difference(before.Fields(), after.Fields()), again, inPlace)
		want, err := kubeletconfig.ShownFields(after.SecretConfigzJSON())
		o.must(err)
		text += o.whoTook(again, inPlace) + "; " + o.configz(f.Path, shown, want[f.Path])
	case strings.Contains(state.Error, "cannot change while the node runs"):
		text = "refused while the node runs; " + o.whoTook(again, nil) + "; " + o.configz(f.Path, "", shown)
	case known:
		text += o.whoTook(again, nil)
	default:
		text = "refused; " + o.whoTook(again, nil) + "; " + o.configz(f.Path, "", shown)
	}
	if state.Phase != liveconf.Good && !strings.Contains(state.Error, f.Path) {
		o.Errorf("%s: the error does not name it: %s", f.Path, state.Error)
	}
	if f.Machine {
		text += onMachine + cgroupVersion()
	}
	return text
}

// wantOwners has those concerned, and nobody else, whom the code says.
func (o *observer) wantOwners(f configgen.Field, changes []configslice.Change, again, inPlace []string) {
	o.Helper()
	restarts := configslice.RestartsOf(changes)
	takers := slices.DeleteFunc(configslice.OwnersOf(changes), func(s string) bool { return slices.Contains(restarts, s) })
	if !slices.Equal(again, restarts) || !slices.Equal(inPlace, takers) {
		o.Errorf("%s: %q started again and %q took it in place; want %q and %q", f.Path, again, inPlace, restarts, takers)
	}
}

func (o *observer) whoTook(again, inPlace []string) string {
	var parts []string
	if len(again) > 0 {
		parts = append(parts, strings.Join(again, ", ")+" started again")
	}
	if len(inPlace) > 0 {
		parts = append(parts, strings.Join(inPlace, ", ")+" took it in place")
	}
	if len(parts) == 0 {
		return "nothing started again"
	}
	return strings.Join(parts, "; ")
}

// generation is that of the configuration with which a service runs.
func (o *observer) generation(service string) uint64 {
	o.Helper()
	conn, err := rpc.DialServer(filepath.Join(o.node.SocketDir, service+".sock"), func(uint32) bool { return true })
	o.must(err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(o.ctx, 10*time.Second)
	defer cancel()
	info, err := commonv1.NewCommonServiceClient(conn).GetInfo(ctx, &commonv1.GetInfoRequest{})
	o.must(err)
	return info.GetConfigGeneration()
}

// follow asks the node where it is by now.
func (o *observer) follow(now *kubeletconfig.Loaded) {
	at := func(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
	o.node.URL = "https://" + at(o.node.Address, now.Config.Port)
	o.node.ReadOnlyURL = "http://" + at(o.node.Address, now.Config.ReadOnlyPort)
	o.node.HealthzURL = "http://" + at("127.0.0.1", *now.Config.HealthzPort)
}

// shown is the field's value in /configz; empty when there is no /configz.
func (o *observer) shown(path string) string {
	body, err := o.nodeAPI("/configz")
	if err != nil {
		return ""
	}
	var document struct {
		Config json.RawMessage `json:"kubeletconfig"`
	}
	o.must(json.Unmarshal([]byte(body), &document))
	fields, err := kubeletconfig.ShownFields(document.Config)
	o.must(err)
	return fields[path]
}

// configz says whether /configz has the value by now. Whoever serves it may have started
// just before.
func (o *observer) configz(path, was, want string) string {
	deadline := time.Now().Add(15 * time.Second)
	for {
		got := o.shown(path)
		switch {
		case got == want && was == "":
			return "/configz as before"
		case got == want && got != was:
			return "in /configz"
		case time.Now().Before(deadline):
			time.Sleep(100 * time.Millisecond)
		case got == "":
			return "there is no /configz"
		default:
			o.Errorf("%s: /configz has %s, want %s instead of %s", path, got, want, was)
			return "not in /configz"
		}
	}
}

// wantUnnoticed has no container started again, and every pod and the Node Ready.
func (o *observer) wantUnnoticed(f configgen.Field) {
	o.Helper()
	now, err := o.containerIDs()
	o.must(err)
	if !maps.Equal(now, o.containers) {
		o.Errorf("%s: the containers were %v and are %v", f.Path, o.containers, now)
		o.rows[f.Path] += "; CONTAINERS ARE OTHERS"
		o.containers = now
	}
	o.guard.mu.Lock()
	defer o.guard.mu.Unlock()
	if heard := o.guard.complaints[o.noticed:]; len(heard) > 0 {
		o.Errorf("%s was noticed: %q", f.Path, heard)
		o.rows[f.Path] += "; PODS OR THE NODE NOTICED"
		o.noticed = len(o.guard.complaints)
	}
}

// compare holds what was seen to the file. -update writes it there: what was not looked at
// stays, and so does what another kind of machine did with what depends on the machine.
func (o *observer) compare(all map[string]string) {
	o.Helper()
	text, err := os.ReadFile(observedFile)
	if !errors.Is(err, fs.ErrNotExist) {
		o.must(err)
	}
	rows := configgen.Observed(string(text))
	maps.DeleteFunc(rows, func(path, _ string) bool { _, known := all[path]; return !known })
	for path, row := range o.rows {
		if _, of, depends := strings.Cut(rows[path], onMachine); !depends || strings.HasSuffix(row, onMachine+of) {
			rows[path] = row
		}
	}
	lines := []string{"# What TestEachFieldOfTheConfigurationDoesOnARunningNodeWhatItsRowSays has seen of each field: make observed writes it."}
	for _, path := range slices.Sorted(maps.Keys(rows)) {
		lines = append(lines, path+": "+rows[path])
	}
	golden.Equal(o.T, observedFile, []byte(strings.Join(lines, "\n")+"\n"))
}

func cgroupVersion() string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return "v2"
	}
	return "v1"
}
