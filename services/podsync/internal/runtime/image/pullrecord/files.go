package pullrecord

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/polylet/polylet/internal/fsatomic"
)

const (
	apiVersion = "kubelet.config.k8s.io/v1beta1"
	olderAPI   = "kubelet.config.k8s.io/v1alpha1"
	kindIntent = "ImagePullIntent"
	kindPulled = "ImagePulledRecord"
	filePrefix = "sha256-"
	// maxFile bounds what is read of a record.
	maxFile = 4 << 20
)

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// file is where the record about a name lies; a hash, as names have slashes.
func file(dir, name string) string { return filepath.Join(dir, filePrefix+Hash([]byte(name))) }

func (l *Ledger) write(dir, name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return fsatomic.WriteFile(file(dir, name), append(data, '\n'), 0o600)
}

// read is the record of an image; nil when there is none.
func (l *Ledger) read(ref string) (*kubeletv1beta1.ImagePulledRecord, error) {
	rec, err := decode[kubeletv1beta1.ImagePulledRecord](file(l.pulled, ref), kindPulled)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && rec.ImageRef != ref {
		return nil, fmt.Errorf("%s is about image %q, not %q", file(l.pulled, ref), rec.ImageRef, ref)
	}
	return rec, err
}

// decode reads one file, strictly.
func decode[T any](path, kind string) (*T, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", path, maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse[T](data, path, kind)
}

// unread says whether an error is the system's, which may have no descriptors left or a
// disk that does not answer: it says nothing of what is in the file.
func unread(err error) bool {
	errno := syscall.Errno(0)
	return errors.As(err, &errno)
}

func parse[T any](data []byte, path, kind string) (*T, error) {
	var meta metav1.TypeMeta
	if err := json.Unmarshal(data, &meta); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if meta.Kind != kind || meta.APIVersion != apiVersion && meta.APIVersion != olderAPI {
		return nil, fmt.Errorf("read %s: it holds a %s of %s, not a %s of %s", path, meta.Kind, meta.APIVersion, kind, apiVersion)
	}
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	var out T
	if err := strict.Decode(&out); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &out, nil
}

// list reads all files of a directory; those that cannot be read are errors
// beside the rest.
func list[T any](dir, kind string) (out []T, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	errs := []error{err}
	for _, e := range entries {
		if !isRecord(e.Name()) {
			continue
		}
		value, err := decode[T](filepath.Join(dir, e.Name()), kind)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, *value)
	}
	return out, errors.Join(errs...)
}

// isRecord says whether a file's name is a record's, not of one that was set aside.
func isRecord(name string) bool {
	return strings.HasPrefix(name, filePrefix) && !fsatomic.IsAside(name)
}

func count(dir string) int {
	entries, _ := os.ReadDir(dir)
	n := 0
	for _, e := range entries {
		if isRecord(e.Name()) {
			n++
		}
	}
	return n
}

// remove removes a record; one that is gone is a success.
func remove(dir, name string) error {
	if err := os.Remove(file(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
