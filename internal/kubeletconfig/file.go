package kubeletconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/go-logr/logr"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxFileBytes bounds what is read as configuration; real ones have a few kB.
const maxFileBytes = 8 << 20

// reading is what is noted while files are read.
type reading struct {
	from origins
	log  logr.Logger
	// ignored are the fields that nobody knows, and those that stand there twice.
	ignored []Notice
	// over lies over the files; nil: nothing does.
	over *Over
}

var quotedField = regexp.MustCompile(`(?:field|key) "([^"]+)"`)

// ignore notes what is wrong with the fields of a file and taken all the same.
func (r *reading) ignore(path string, warnings []string) {
	if len(warnings) == 0 {
		return
	}
	r.log.Info("The configuration has fields that are not understood and are ignored", "file", path, "fields", warnings)
	for _, w := range warnings {
		setting := "a field"
		if match := quotedField.FindStringSubmatch(w); match != nil {
			setting = match[1]
		}
		r.ignored = append(r.ignored, Notice{
			Setting: setting, Value: "in " + path, Text: "is ignored: " + strings.Join(strings.Fields(w), " ") + "; correct it, or take it out",
		})
	}
}

// loadFile reads a --config file: strictly first; unknown and duplicate fields
// are then a warning, everything else an error.
func loadFile(path string, r *reading) (*kubeletv1beta1.KubeletConfiguration, error) {
	raw, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("read --config file: %w", err)
	}
	c, warnings, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("--config file %s: %w", path, err)
	}
	r.ignore(path, warnings)
	r.from.layer("file "+path, raw)
	resolvePaths(c, filepath.Dir(path))
	setDefaults(c)
	defaultEviction(c)
	return c, nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%s has %d bytes, more than the %d that a configuration may have", path, info.Size(), maxFileBytes)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1)) // a device has no size
	if err == nil && len(raw) > maxFileBytes {
		err = fmt.Errorf("%s has more bytes than the %d that a configuration may have", path, maxFileBytes)
	}
	return raw, err
}

func decode(raw []byte) (c *kubeletv1beta1.KubeletConfiguration, warnings []string, err error) {
	document, warnings, err := toJSON(raw)
	if err != nil {
		return nil, nil, err
	}
	c = &kubeletv1beta1.KubeletConfiguration{}
	strict, err := kjson.UnmarshalStrict(document, c)
	if err != nil {
		return nil, nil, fmt.Errorf("decode: %w", err)
	}
	for _, s := range strict {
		warnings = append(warnings, s.Error())
	}
	if err := checkKind(c.APIVersion, c.Kind); err != nil {
		return nil, nil, err
	}
	return c, warnings, nil
}

// toJSON turns YAML or JSON into JSON; duplicate keys are a warning.
func toJSON(raw []byte) (document []byte, warnings []string, err error) {
	if len(strings.TrimSpace(string(raw))) == 0 {
		return nil, nil, errors.New("the file is empty: give it at least apiVersion and kind")
	}
	document, strictErr := yaml.YAMLToJSONStrict(raw)
	if strictErr == nil {
		return document, nil, nil
	}
	document, err = yaml.YAMLToJSON(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("neither YAML nor JSON: %w", err)
	}
	return document, []string{strictErr.Error()}, nil
}

func checkKind(apiVersion, kind string) error {
	if apiVersion == kubeletv1beta1.SchemeGroupVersion.String() && kind == "KubeletConfiguration" {
		return nil
	}
	return fmt.Errorf("apiVersion %q, kind %q: want apiVersion %s, kind KubeletConfiguration",
		apiVersion, kind, kubeletv1beta1.SchemeGroupVersion)
}

// resolvePaths makes the file's relative paths absolute, seen from its directory.
func resolvePaths(c *kubeletv1beta1.KubeletConfiguration, dir string) {
	paths := []*string{
		&c.StaticPodPath, &c.Authentication.X509.ClientCAFile, &c.TLSCertFile, &c.TLSPrivateKeyFile,
		&c.VolumePluginDir, &c.PodLogsDir,
	}
	if c.ResolverConfig != nil {
		paths = append(paths, c.ResolverConfig)
	}
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

// mergeDir lays the drop-ins (*.conf, in lexical order, subdirectories too)
// over base as JSON merge patches (RFC 7396), and applies defaults after each.
func mergeDir(base *kubeletv1beta1.KubeletConfiguration, dir string, r *reading) (*kubeletv1beta1.KubeletConfiguration, error) {
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if filepath.Ext(path) != ".conf" {
			r.log.V(4).Info("Not a drop-in: its name does not end in .conf", "file", path)
			return nil
		}
		merged, err := mergeFile(base, path, r)
		if err != nil {
			return fmt.Errorf("drop-in %s: %w", path, err)
		}
		base = merged
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("--config-dir: %w", err)
	}
	return base, nil
}

func mergeFile(base *kubeletv1beta1.KubeletConfiguration, path string, r *reading) (*kubeletv1beta1.KubeletConfiguration, error) {
	raw, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return mergeDocument(base, path, "drop-in "+path, raw, r)
}

// mergeDocument lays a document over base: where is where it stands, origin who sets its
// fields.
func mergeDocument(base *kubeletv1beta1.KubeletConfiguration, where, origin string, raw []byte, r *reading) (*kubeletv1beta1.KubeletConfiguration, error) {
	document, warnings, err := toJSON(raw)
	if err != nil {
		return nil, err
	}
	var patch, whole map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(document, &patch); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	apiVersion, _ := patch["apiVersion"].(string)
	kind, _ := patch["kind"].(string)
	if err := checkKind(apiVersion, kind); err != nil {
		return nil, err
	}
	before, err := json.Marshal(base)
	if err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(before, &whole); err != nil {
		return nil, err
	}
	after, err := json.Marshal(mergePatch(whole, patch))
	if err != nil {
		return nil, err
	}
	merged := &kubeletv1beta1.KubeletConfiguration{}
	strict, err := kjson.UnmarshalStrict(after, merged)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	for _, s := range strict {
		warnings = append(warnings, s.Error())
	}
	r.ignore(where, warnings)
	r.from.layer(origin, raw)
	keepEmpty(merged, base, patch)
	setDefaults(merged)
	return merged, nil
}

// keepEmpty keeps what is empty in base and is not a matter of the patch: JSON
// leaves an empty list or map out as if it were not set, and then it would get
// its default.
func keepEmpty(merged, base *kubeletv1beta1.KubeletConfiguration, patch map[string]any) {
	to, from := reflect.ValueOf(merged).Elem(), reflect.ValueOf(base).Elem()
	for i := range to.NumField() {
		kind := to.Field(i).Kind()
		name, _, _ := strings.Cut(to.Type().Field(i).Tag.Get("json"), ",")
		if kind != reflect.Map && kind != reflect.Slice || from.Field(i).IsNil() || from.Field(i).Len() > 0 || !to.Field(i).IsNil() {
			continue
		}
		if change, there := patch[name]; !there || change != nil {
			to.Field(i).Set(from.Field(i))
		}
	}
}

// mergePatch is RFC 7396 on decoded JSON: objects merge, null deletes,
// everything else replaces.
func mergePatch(target any, patch map[string]any) map[string]any {
	out, ok := target.(map[string]any)
	if !ok {
		out = map[string]any{}
	}
	for key, change := range patch {
		switch change := change.(type) {
		case nil:
			delete(out, key)
		case map[string]any:
			out[key] = mergePatch(out[key], change)
		default:
			out[key] = change
		}
	}
	return out
}
