package credentialprovider

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	"sigs.k8s.io/yaml"
)

// The versions of the configuration and of the plugins' protocol.
const (
	configGroup = "kubelet.config.k8s.io/"
	pluginGroup = "credentialprovider.kubelet.k8s.io/"
	pluginV1    = pluginGroup + "v1"
)

var versions = []string{"v1", "v1beta1", "v1alpha1"} //nolint:gochecknoglobals // a constant list

// Load reads the configuration of plugins from a file, or from the files of a
// directory that end in .json, .yaml or .yml, in the order of their names. It
// checks them, and that the programs are in binDir.
// Source: the documentation of --image-credential-provider-config.
func Load(path, binDir string) ([]kubeletconfigv1.CredentialProvider, error) {
	files, err := filesOf(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of credential providers: %w", err)
	}
	var all []kubeletconfigv1.CredentialProvider
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("read the configuration of credential providers: %w", err)
		}
		some, err := parse(data)
		if err != nil {
			return nil, fmt.Errorf("configuration of credential providers %s: %w", f, err)
		}
		all = append(all, some...)
	}
	if err := validate(all); err != nil {
		return nil, fmt.Errorf("configuration of credential providers %s: %w", path, err)
	}
	for i := range all {
		program := filepath.Join(binDir, all[i].Name)
		if info, err := os.Stat(program); err != nil {
			return nil, fmt.Errorf("credential provider %q: its program must be in the directory that --image-credential-provider-bin-dir names: %w", all[i].Name, err)
		} else if info.IsDir() || info.Mode()&0o111 == 0 {
			return nil, fmt.Errorf("credential provider %q: %s is not an executable file", all[i].Name, program)
		}
	}
	return all, nil
}

func filesOf(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path) // sorted by name
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, ext) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no .json, .yaml or .yml file", path)
	}
	return files, nil
}

// parse reads one file, strictly. The versions have the same shape.
func parse(data []byte) ([]kubeletconfigv1.CredentialProvider, error) {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(data, &meta); err != nil {
		return nil, err
	}
	version, ok := strings.CutPrefix(meta.APIVersion, configGroup)
	if meta.Kind != "CredentialProviderConfig" || !ok || !slices.Contains(versions, version) {
		return nil, fmt.Errorf("it holds a %q of %q, not a CredentialProviderConfig of %sv1", meta.Kind, meta.APIVersion, configGroup)
	}
	var config kubeletconfigv1.CredentialProviderConfig
	if err := yaml.UnmarshalStrict(data, &config); err != nil {
		return nil, err
	}
	return config.Providers, nil
}

// validate checks the providers of all files together.
func validate(list []kubeletconfigv1.CredentialProvider) error {
	if len(list) == 0 {
		return errors.New("at least one provider is required")
	}
	seen := map[string]bool{}
	var errs []error
	for i := range list {
		p := &list[i]
		if seen[p.Name] {
			errs = append(errs, fmt.Errorf("provider %q is there twice", p.Name))
		}
		seen[p.Name] = true
		for _, err := range problems(p) {
			errs = append(errs, fmt.Errorf("provider %q: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

func problems(p *kubeletconfigv1.CredentialProvider) (errs []error) {
	bad := func(is bool, text string) {
		if is {
			errs = append(errs, errors.New(text))
		}
	}
	bad(p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ \\\x00"), "name must be a file's name without spaces")
	version, ok := strings.CutPrefix(p.APIVersion, pluginGroup)
	bad(!ok || !slices.Contains(versions, version), "apiVersion must be "+pluginV1)
	bad(len(p.MatchImages) == 0, "matchImages must name images")
	for _, m := range p.MatchImages {
		bad(m == "" || strings.ContainsAny(m, " \t\n"), fmt.Sprintf("matchImages: %q is no image", m))
	}
	bad(p.DefaultCacheDuration == nil, "defaultCacheDuration is required")
	bad(p.DefaultCacheDuration != nil && p.DefaultCacheDuration.Duration < 0, "defaultCacheDuration must not be negative")
	for _, e := range p.Env {
		bad(e.Name == "" || strings.Contains(e.Name, "="), fmt.Sprintf("env: %q is no name of a variable", e.Name))
	}
	t := p.TokenAttributes
	if t == nil {
		return errs
	}
	bad(p.APIVersion != pluginV1, "tokenAttributes needs apiVersion "+pluginV1)
	bad(t.ServiceAccountTokenAudience == "", "serviceAccountTokenAudience is required")
	bad(t.RequireServiceAccount == nil, "requireServiceAccount is required")
	bad(t.CacheType != kubeletconfigv1.ServiceAccountServiceAccountTokenCacheType && t.CacheType != kubeletconfigv1.TokenServiceAccountTokenCacheType,
		"cacheType must be ServiceAccount or Token")
	bad(len(t.RequiredServiceAccountAnnotationKeys) > 0 && t.RequireServiceAccount != nil && !*t.RequireServiceAccount,
		"requiredServiceAccountAnnotationKeys needs requireServiceAccount: true")
	keys := map[string]bool{}
	for _, k := range slices.Concat(t.RequiredServiceAccountAnnotationKeys, t.OptionalServiceAccountAnnotationKeys) {
		bad(k == "" || keys[k], fmt.Sprintf("the service account's annotation %q is empty or there twice", k))
		keys[k] = true
	}
	return errs
}
