package main

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// volume is what is known of one, or of a snapshot of one.
type volume struct {
	Bytes     int64
	Block     bool
	Ephemeral bool
	// Source is the volume that a snapshot is of, Made is when it was made, and Group is
	// the group snapshot that it belongs to; empty for none.
	Source string
	Made   time.Time
	Group  string
	// Staged is where, empty for nowhere, and Published are its targets.
	Staged    string
	Published []string
	// Device is its loop device; empty while it is not staged.
	Device string
}

// volumes are the driver's volumes on its disk, or its snapshots. Their user has a lock.
type volumes struct{ dir string }

// content is where a volume's data is.
func (v volumes) content(id string) string { return filepath.Join(v.dir, id+".volume") }

func (v volumes) record(id string) string { return filepath.Join(v.dir, id+".json") }

// get reads what is known of a volume; the error says NotFound for none.
func (v volumes) get(id string) (volume, error) {
	var one volume
	if id == "" || strings.ContainsRune(id, '/') {
		return one, status.Errorf(codes.InvalidArgument, "%q is no id", id)
	}
	raw, err := os.ReadFile(v.record(id))
	if errors.Is(err, fs.ErrNotExist) {
		return one, status.Errorf(codes.NotFound, "there is no %s", id)
	}
	if err != nil {
		return one, err
	}
	return one, json.Unmarshal(raw, &one)
}

// put writes what is known of a volume.
func (v volumes) put(id string, one volume) error {
	raw, err := json.Marshal(one)
	if err != nil {
		return err
	}
	next := v.record(id) + ".new"
	if err := os.WriteFile(next, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(next, v.record(id))
}

// make makes a volume, with the data of a file or directory when from is not empty.
func (v volumes) make(id, from string, one volume) error {
	if err := v.fill(id, from, one); err != nil {
		return errors.Join(err, os.RemoveAll(v.content(id)))
	}
	return v.put(id, one)
}

func (v volumes) fill(id, from string, one volume) error {
	if one.Block {
		return v.fillDevice(id, from, one.Bytes)
	}
	if err := os.MkdirAll(v.content(id), 0o777); err != nil {
		return err
	}
	if err := os.Chmod(v.content(id), 0o777); err != nil { //nolint:gosec // As the real one's: any user's pod writes there.
		return err
	}
	if from == "" {
		return nil
	}
	return os.CopyFS(v.content(id), os.DirFS(from))
}

func (v volumes) fillDevice(id, from string, bytes int64) error {
	file, err := os.OpenFile(v.content(id), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if from != "" {
		source, err := os.Open(from)
		if err != nil {
			return errors.Join(err, file.Close())
		}
		_, err = io.Copy(file, source)
		if err = errors.Join(err, source.Close()); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return errors.Join(file.Truncate(bytes), file.Close())
}

// all are the ids of all, in order.
func (v volumes) all() ([]string, error) {
	found, err := filepath.Glob(v.record("*"))
	for i, file := range found {
		found[i] = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	}
	return found, err
}

// remove removes a volume that nobody uses.
func (v volumes) remove(id string) error {
	if err := os.RemoveAll(v.content(id)); err != nil {
		return err
	}
	return os.Remove(v.record(id))
}

// used says by whom a volume is used; empty for nobody.
func (one volume) used() string {
	if one.Staged == "" {
		return strings.Join(one.Published, ", ")
	}
	return strings.Join(append([]string{one.Staged}, one.Published...), ", ")
}

// at is the volume with or without a target.
func (one volume) at(target string, there bool) volume {
	one.Published = slices.DeleteFunc(slices.Clone(one.Published), func(p string) bool { return p == target })
	if there {
		one.Published = append(one.Published, target)
	}
	return one
}
