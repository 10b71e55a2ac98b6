package pullrecord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/fsatomic"
)

// Run deals with the pulls of a previous run, see Recover, as soon as the runtime
// answers; it returns when that is done or ctx is. Until then their images count as
// pulled, so that nobody may use them unverified.
func (l *Ledger) Run(ctx context.Context, present func(ctx context.Context, image string) (ref string, err error)) {
	log := klog.FromContext(ctx)
	retry := backoff.New(backoff.Config{Initial: time.Second, Max: time.Minute, Jitter: .2})
	for ctx.Err() == nil {
		var away error
		err := l.Recover(log, func(image string) (string, error) {
			ref, err := present(ctx, image)
			away = err
			return ref, err
		})
		if away == nil {
			if err != nil {
				log.Error(err, "Some records of image pulls could not be read or written; their images are verified when they are used")
			}
			return
		}
		_ = retry.Wait(ctx)
	}
}

// Recover deals with the pulls that were under way when the last process
// ended: an image that is present by now gets a record without any grant, so
// that it is verified. present gives the reference of an image, empty for none.
// It also brings records of older versions up to date.
func (l *Ledger) Recover(log logr.Logger, present func(image string) (ref string, err error)) error {
	var errs []error
	l.sweep()
	intents, err := list[kubeletv1beta1.ImagePullIntent](l.pulling, kindIntent)
	errs = append(errs, err)
	for _, intent := range intents {
		ref, err := present(intent.Image)
		if err != nil {
			return fmt.Errorf("look for image %q, which was being pulled: %w", intent.Image, err)
		}
		errs = append(errs, l.recover(log, intent.Image, ref))
	}
	records, err := list[kubeletv1beta1.ImagePulledRecord](l.pulled, kindPulled)
	errs = append(errs, err)
	for _, rec := range records {
		if rec.APIVersion != apiVersion {
			errs = append(errs, l.update(rec.ImageRef))
		}
	}
	return errors.Join(errs...)
}

// update writes a record of an older version as this one does.
func (l *Ledger) update(ref string) error {
	defer l.turn(l.pulled, ref)()
	rec, err := l.read(ref)
	if err != nil || rec == nil || rec.APIVersion == apiVersion {
		return err
	}
	rec.TypeMeta = typeMeta(kindPulled)
	return l.write(l.pulled, ref, rec)
}

// recover ends one intent of a previous run, unless the image is being pulled again.
func (l *Ledger) recover(log logr.Logger, image, ref string) error {
	defer l.turn(l.pulling, image)()
	if l.underWay(image) > 0 {
		return nil
	}
	if ref != "" {
		log.Info("An image was pulled while nobody took note; it is verified before it is used", "image", image)
		if err := l.add(image, ref, Grant{}); err != nil {
			return err
		}
	}
	return remove(l.pulling, image)
}

// Prune removes the records of images that are not among refs, unless they are
// newer than until, which lies before refs were asked for.
func (l *Ledger) Prune(refs []string, until time.Time) error {
	records, err := list[kubeletv1beta1.ImagePulledRecord](l.pulled, kindPulled)
	var errs []error
	if err != nil {
		errs = append(errs, l.mend(refs))
	}
	for _, rec := range records {
		if !slices.Contains(refs, rec.ImageRef) && rec.LastUpdatedTime.Time.Before(until) {
			errs = append(errs, l.prune(rec.ImageRef, until))
		}
	}
	return errors.Join(errs...)
}

// prune removes a record unless it has become newer than until.
func (l *Ledger) prune(ref string, until time.Time) error {
	defer l.turn(l.pulled, ref)()
	rec, err := l.read(ref)
	if err != nil || rec == nil || !rec.LastUpdatedTime.Time.Before(until) {
		return err
	}
	return remove(l.pulled, ref)
}

// mend sets the records aside that cannot be read. One of an image that is
// present is replaced at the same moment by one that grants nothing: without any, the
// image would pass for a preloaded one.
func (l *Ledger) mend(refs []string) error {
	of := make(map[string]string, len(refs))
	for _, ref := range refs {
		of[file(l.pulled, ref)] = ref
	}
	entries, err := os.ReadDir(l.pulled)
	errs := []error{err}
	for _, e := range entries {
		if path := filepath.Join(l.pulled, e.Name()); isRecord(e.Name()) {
			errs = append(errs, l.mendOne(path, of[path]))
		}
	}
	return errors.Join(errs...)
}

// mendOne sets one record aside if it cannot be read; ref is of an image that is
// present, or empty.
func (l *Ledger) mendOne(path, ref string) error {
	defer l.files.Take(path)()
	_, cause := decode[kubeletv1beta1.ImagePulledRecord](path, kindPulled)
	if cause == nil || errors.Is(cause, fs.ErrNotExist) {
		return nil
	}
	if unread(cause) {
		return fmt.Errorf("the record of an image's pull cannot be read now, and stays: %w", cause)
	}
	aside := fsatomic.AsideOf(path)
	var err error
	if ref != "" {
		err = l.swap(path, aside, ref)
	} else {
		err = os.Rename(path, aside)
	}
	if err != nil {
		return fmt.Errorf("the record of an image's pull is damaged and could not be set aside: %w; remove %s and the image by hand", errors.Join(cause, err), path)
	}
	return fmt.Errorf("the record of an image's pull is damaged and was set aside as %s; the image is verified before it is used: %w", aside, cause)
}

// swap puts a record that grants nothing in the place of a damaged one, which is
// called aside then: at no moment is there none.
func (l *Ledger) swap(path, aside, ref string) error {
	fresh, err := json.Marshal(&kubeletv1beta1.ImagePulledRecord{TypeMeta: typeMeta(kindPulled), ImageRef: ref, LastUpdatedTime: metav1.Now()})
	if err != nil {
		return err
	}
	if err := fsatomic.WriteFile(aside, append(fresh, '\n'), 0o600); err != nil {
		return err
	}
	return unix.Renameat2(unix.AT_FDCWD, aside, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
}
