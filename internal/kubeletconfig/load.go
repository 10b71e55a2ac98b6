// Package kubeletconfig turns a kubelet's command line, KubeletConfiguration
// file and drop-ins into the configuration in effect. It owns defaults, order
// of precedence and validation of what is used; it must never look at the
// apiserver or change the host.
package kubeletconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/internal/service"
)

// Loaded is the configuration in effect.
type Loaded struct {
	// Config has every default applied; its pointers with a default are not nil.
	Config *kubeletv1beta1.KubeletConfiguration
	// Flags are what only flags can say.
	Flags Flags
	// NodeName is --hostname-override or the hostname, in lower case.
	NodeName string
	// Standalone is true when there is no apiserver to talk to.
	Standalone bool
	// Args are the arguments it was loaded from.
	Args []string

	gates map[string]bool
	// origins are those by files and drop-ins.
	origins origins
	// ignored is what the files say and nobody understands.
	ignored []Notice
	// slice is where the configuration comes from instead of files; nil: files.
	slice  *Slice
	newest newest
	// taken is a newer slice that the process has taken while it ran; nil: none.
	taken atomic.Pointer[Slice]
	// overSum is that of the document over the files; empty: there is none.
	overSum string
	// setBy is what Origins found.
	said  sync.Once
	setBy map[string]string
}

// ErrHelp is returned for --help. ErrVersion is returned for --version; print
// VersionText. Both are answers, not failures.
var (
	ErrHelp    = pflag.ErrHelp
	ErrVersion = errors.New("version was asked for")
)

// VersionText is what --version prints.
func VersionText() string { return "Kubernetes " + buildinfo.KubernetesVersion }

// Load reads args (without the program's name): flags, then --config, then
// --config-dir, then the flags again on top. Warnings are logged.
func Load(args []string) (*Loaded, error) { return load(args, klog.Background()) }

// LoadAgain is Load for who has loaded the same arguments before, and may do so often:
// it logs nothing.
func LoadAgain(args []string) (*Loaded, error) { return load(args, logr.Discard()) }

// Usage writes all flags with their defaults.
func Usage(w io.Writer) {
	fs := newFlagSet(defaultFlags(), legacyDefaults())
	fmt.Fprint(w, fs.FlagUsagesWrapped(100))
}

func newFlagSet(f *Flags, c *kubeletv1beta1.KubeletConfiguration) *pflag.FlagSet {
	fs := pflag.NewFlagSet("polylet", pflag.ContinueOnError)
	fs.SortFlags = true
	fs.Usage = func() {}
	fs.SetOutput(io.Discard)
	AddFlags(fs, f, c)
	return fs
}

func load(args []string, log logr.Logger) (*Loaded, error) { return loadOn(thisHost(), args, log) }

func loadOn(h host, args []string, log logr.Logger) (*Loaded, error) {
	return loadFrom(h, args, log, nil)
}

// loadFrom is loadOn, of a slice where there is one.
func loadFrom(h host, args []string, log logr.Logger, slice *Slice) (*Loaded, error) {
	return loadReading(h, args, slice, &reading{from: origins{}, log: log})
}

// loadReading is loadFrom, with what is noted while files are read.
func loadReading(h host, args []string, slice *Slice, read *reading) (*Loaded, error) {
	args = withoutTerminator(args)
	flags, config := defaultFlags(), legacyDefaults()
	if err := parse(args, flags, config); err != nil {
		return nil, err
	}
	var err error
	if slice == nil && flags.ConfigSlice != "" {
		slice, err = readSlice(flags.ConfigSlice)
		if flags.FollowSlice && errors.Is(err, fs.ErrNotExist) {
			slice, err = nil, nil // nothing has been handed over yet: until it is, the files are read
		}
		if err != nil {
			return nil, err
		}
	}
	if slice != nil {
		config, read.from, err = fromSlice(flags, args, slice)
		read.ignored = slice.Ignored
	} else {
		config, err = layers(flags, config, args, read)
	}
	if err != nil {
		return nil, err
	}
	l := &Loaded{Config: config, Flags: *flags, Args: args, origins: read.from, ignored: read.ignored, slice: slice, overSum: read.over.Sum()}
	if slice != nil {
		l.overSum = slice.over
	}
	l.Standalone = l.Flags.Kubeconfig == "" && l.Flags.BootstrapKubeconfig == ""
	if l.NodeName, err = nodeName(l.Flags.HostnameOverride); err != nil {
		return nil, err
	}
	if l.gates, err = resolveGates(config.FeatureGates); err != nil {
		return nil, fmt.Errorf("featureGates: %w", err)
	}
	if err := errors.Join(validateFlags(&l.Flags), l.Flags.checkUsers(), validate(config, l.gates, h)); err != nil {
		return nil, fmt.Errorf("failed to validate kubelet configuration:\n%w", err)
	}
	return l, nil
}

// layers puts the files under the flags.
func layers(flags *Flags, config *kubeletv1beta1.KubeletConfiguration, args []string, r *reading) (*kubeletv1beta1.KubeletConfiguration, error) {
	if flags.ConfigFile == "" && flags.ConfigDir == "" && r.over == nil {
		return config, nil
	}
	if flags.ConfigFile != "" {
		fromFile, err := loadFile(flags.ConfigFile, r)
		if err != nil {
			return nil, err
		}
		config = fromFile
	} else {
		config = legacyDefaults()
	}
	if flags.ConfigDir != "" {
		merged, err := mergeDir(config, flags.ConfigDir, r)
		if err != nil {
			return nil, err
		}
		config = merged
	}
	if r.over != nil {
		merged, err := r.layOver(config)
		if err != nil {
			return nil, err
		}
		config = merged
	}
	if flags.ConfigFile != "" {
		defaultEviction(config)
	}
	// Flags go before files: parse them again on top of what was read.
	again := defaultFlags()
	if err := parse(args, again, config); err != nil {
		return nil, err
	}
	*flags = *again
	return config, nil
}

// FlagsOf are the flags alone, whatever the files say.
func FlagsOf(args []string) (*Flags, error) {
	flags := defaultFlags()
	if err := parse(args, flags, legacyDefaults()); err != nil {
		return nil, err
	}
	return flags, nil
}

func parse(args []string, f *Flags, c *kubeletv1beta1.KubeletConfiguration) error {
	fs := newFlagSet(f, c)
	if err := fs.Parse(args); err != nil {
		return explain(err)
	}
	if help, _ := fs.GetBool("help"); help {
		return ErrHelp
	}
	if f.version != "" && f.version != "false" {
		return ErrVersion
	}
	if rest := fs.Args(); len(rest) > 0 {
		return fmt.Errorf("unknown command %q: this takes flags only", rest[0])
	}
	return nil
}

// withoutTerminator leaves out a "--" at the end: a service gets more flags behind these.
func withoutTerminator(args []string) []string {
	fs := newFlagSet(defaultFlags(), legacyDefaults())
	if fs.Parse(args) == nil && fs.ArgsLenAtDash() == 0 && fs.NArg() == 0 {
		return args[:len(args)-1]
	}
	return args
}

// explain says what to do about flags that Kubernetes once had.
func explain(err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return ErrHelp
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	name := strings.ReplaceAll(unknown.GetSpecifiedName(), "_", "-")
	if mend, ok := removedFlags()[name]; ok {
		return fmt.Errorf("flag --%s was removed from Kubernetes: %s", name, mend)
	}
	if strings.HasPrefix(name, "cni-") || strings.HasPrefix(name, "experimental-") {
		return fmt.Errorf("flag --%s was removed from Kubernetes: remove it", name)
	}
	return fmt.Errorf("%w: see --help", err)
}

func nodeName(override string) (string, error) {
	name := override
	if name == "" {
		hostname, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("read the hostname for the node's name: %w: pass --hostname-override", err)
		}
		name = hostname
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		return "", errors.New("the node's name is empty: set a hostname or pass --hostname-override")
	}
	return name, nil
}

// FeatureEnabled tells whether a feature gate is on: what was set, or the
// default of Kubernetes 1.36. Unknown names are off.
func (l *Loaded) FeatureEnabled(name string) bool { return l.gates[name] }

// FlagValues are all flags and their values as given on the command line, not
// as files say; what may be secret is masked.
func (l *Loaded) FlagValues() map[string]string {
	fs := newFlagSet(defaultFlags(), legacyDefaults())
	// Load has parsed them before; what cannot be parsed keeps its default.
	_ = fs.Parse(l.Args)
	out := map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) {
		out[f.Name] = f.Value.String()
		switch f.Name {
		case "manifest-url-header":
			out[f.Name] = "CLASSIFIED"
		case "manifest-url":
			out[f.Name] = ShownURL(f.Value.String())
		}
	})
	return out
}

// ConfigzJSON is the configuration in effect as a KubeletConfiguration document
// with kind and apiVersion. Values of HTTP headers, which may be secrets, are
// masked one by one, and what may be one in the URL that they are sent to.
func (l *Loaded) ConfigzJSON() []byte {
	shown := l.Config.DeepCopy()
	for _, values := range shown.StaticPodURLHeader {
		for i := range values {
			values[i] = "<masked>"
		}
	}
	shown.StaticPodURL = ShownURL(shown.StaticPodURL)
	return document(shown)
}

// CopyJSON is ConfigzJSON for another process to load: lists and maps that are
// empty stand there as such. JSON leaves them out otherwise, and what loads the
// document would give them their default.
func (l *Loaded) CopyJSON() []byte { return l.copyOf(l.ConfigzJSON()) }

// SecretCopyJSON is CopyJSON with nothing masked.
func (l *Loaded) SecretCopyJSON() []byte { return l.copyOf(l.SecretConfigzJSON()) }

func (l *Loaded) copyOf(shown []byte) []byte {
	var fields map[string]json.RawMessage // a float64 would round large integers
	if err := json.Unmarshal(shown, &fields); err != nil {
		return shown
	}
	config := reflect.ValueOf(l.Config).Elem()
	for i := range config.NumField() {
		name, _, _ := strings.Cut(config.Type().Field(i).Tag.Get("json"), ",")
		if value := config.Field(i); name != "" && (value.Kind() == reflect.Map || value.Kind() == reflect.Slice) && value.Len() == 0 {
			if fields[name] = json.RawMessage("[]"); value.Kind() == reflect.Map {
				fields[name] = json.RawMessage("{}")
			}
		}
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return shown
	}
	return out
}

// SecretConfigzJSON is ConfigzJSON with nothing masked: what /configz shows
// under "kubeletconfig" to whoever may see it, as the kubelet's does.
func (l *Loaded) SecretConfigzJSON() []byte { return document(l.Config) }

func document(c *kubeletv1beta1.KubeletConfiguration) []byte {
	out, err := json.Marshal(c)
	if err != nil {
		// A decoded configuration can be encoded; its types allow no other.
		return []byte("{}")
	}
	return out
}

// WaitsForServing says that nodestatus gets the serving certificate from the
// apiserver: serverTLSBootstrap, and no other certificate is configured.
func (l *Loaded) WaitsForServing() bool {
	return l.Config.ServerTLSBootstrap && l.FeatureEnabled("RotateKubeletServerCertificate") && l.Config.TLSCertFile == "" && l.Config.TLSPrivateKeyFile == ""
}

// AsksForClientCertificate says that nodestatus asks the apiserver for the node's client
// certificate: the first one with --bootstrap-kubeconfig, the next ones with
// rotateCertificates.
func (l *Loaded) AsksForClientCertificate() bool {
	return !l.Standalone && (l.Config.RotateCertificates || l.Flags.BootstrapKubeconfig != "")
}

// ServingFiles are the serving certificate and key: the configured files, else
// what nodestatus writes when it gets them, both in one file, else the pair in
// --cert-dir.
func (l *Loaded) ServingFiles() (cert, key string) {
	switch {
	case l.Config.TLSCertFile != "" || l.Config.TLSPrivateKeyFile != "":
		return l.Config.TLSCertFile, l.Config.TLSPrivateKeyFile
	case l.WaitsForServing():
		current := filepath.Join(l.Flags.CertDir, "kubelet-server-current.pem")
		return current, current
	}
	return filepath.Join(l.Flags.CertDir, "kubelet.crt"), filepath.Join(l.Flags.CertDir, "kubelet.key")
}

// ServiceUser is the user (name or number) that a service runs as: its flag's,
// else polylet-<service> if that exists, else "", none of its own. podsync is
// root.
func (l *Loaded) ServiceUser(name string) string { return l.Flags.ServiceUser(name) }

// ServiceUser is Loaded.ServiceUser.
func (f *Flags) ServiceUser(name string) string {
	if name == service.Podsync {
		return "root"
	}
	if given := f.Users()[name]; given != nil && *given != "" {
		return *given
	}
	own := "polylet-" + name
	if _, err := user.Lookup(own); err != nil {
		return ""
	}
	return own
}

// Users are the flags that say whom each of service.Separate runs as.
func (f *Flags) Users() map[string]*string {
	return map[string]*string{service.Gateway: &f.GatewayUser, service.Probes: &f.ProbesUser, service.Stats: &f.StatsUser, service.Nodestatus: &f.NodestatusUser}
}

// checkUsers refuses a user of two services: neither could be told from the
// other, and each could read and trace what the other has.
func (f *Flags) checkUsers() error {
	taken := map[string]string{}
	for _, name := range service.Separate() {
		who := f.ServiceUser(name)
		if other := taken[who]; other != "" {
			return fmt.Errorf("--%s-user and --%s-user are both %s: give each service a user of its own", other, name, who)
		}
		if who != "" && who != "root" && who != "0" {
			taken[who] = name
		}
	}
	return nil
}
