// Package pullrecord remembers with whose credentials the images of this node were
// pulled, in files of the shape and at the place that the kubelet has them, and
// decides whether a pod may use an image that is present without a pull.
//
// It owns <root>/image_manager. It must never keep a credential, only hashes of
// them, and never let an unreadable file grant access.
//
// Source: KEP-2535, Ensure Secret Pulled Images.
package pullrecord

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image/reference"
)

// mostGrants bounds the secrets or service accounts that a check, not a pull,
// adds to a record: namespaces that come and go must not fill it without end.
const mostGrants = 100

// mostNames bounds the names, without tag or digest, of one image of which a record
// says who may use it, and mostPulledWith the secrets, and service accounts, that have
// pulled it by one name: whoever makes pods may give one image names without end. What
// is left out is pulled again before it is used.
const (
	mostNames      = 256
	mostPulledWith = 1000
)

// Config of a Ledger.
type Config struct {
	// RootDir is the node agent's root; the files lie below image_manager.
	RootDir string
	// Policy says which images that are present need verification;
	// NeverVerifyPreloadedImages when empty.
	Policy kubeletv1beta1.ImagePullCredentialsVerificationPolicy
	// Allowlist are names without tag or digest, which may end in "/*", for
	// NeverVerifyAllowlistedImages.
	Allowlist []string
}

// Grant is what a pod has, or a pull had, to be allowed an image: the kubelet's
// own words. The zero value is nothing.
type Grant = kubeletv1beta1.ImagePullCredentials

// Ledger is the records. Safe for concurrent use.
type Ledger struct {
	cfg     Config
	pulling string
	pulled  string

	mu     sync.Mutex
	counts map[string]int // pulls under way, by image
	// unsure are those of them of which an earlier pull may have been done
	// though nobody was told.
	unsure map[string]bool
}

// New makes a Ledger; it touches no file.
func New(cfg Config) *Ledger {
	if cfg.Policy == "" {
		cfg.Policy = kubeletv1beta1.NeverVerifyPreloadedImages
	}
	dir := filepath.Join(cfg.RootDir, "image_manager")
	return &Ledger{cfg: cfg, pulling: filepath.Join(dir, "pulling"), pulled: filepath.Join(dir, "pulled"), counts: map[string]int{}, unsure: map[string]bool{}}
}

// Begin notes that a pull of an image begins. Each call is followed by one of
// Pulled, Failed or Unsure. An error means that the image must not be pulled: it could
// pass for a preloaded one after a crash.
func (l *Ledger) Begin(image string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts[image] == 0 {
		l.unsure[image] = l.intended(image)
		intent := &kubeletv1beta1.ImagePullIntent{TypeMeta: typeMeta(kindIntent), Image: image}
		if err := l.write(l.pulling, image, intent); err != nil {
			return fmt.Errorf("note that image %q is about to be pulled: %w", image, err)
		}
	}
	l.counts[image]++
	return nil
}

// Failed notes that a pull came to nothing.
func (l *Ledger) Failed(image string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end(image, l.unsure[image])
}

// Unsure notes that nobody knows how a pull ended: it was given up, or the
// runtime went away. The intent stays until a pull succeeds or Recover looks.
func (l *Ledger) Unsure(image string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsure[image] = true
	return l.end(image, true)
}

// Pulled notes that the image with this reference was pulled, and what for.
// Until its record is on the disk, the intent stays, so that the image is
// verified in any case.
func (l *Ledger) Pulled(image, ref string, by Grant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.add(image, ref, by); err != nil {
		l.unsure[image] = true
		_ = l.end(image, true)
		return fmt.Errorf("note that image %q was pulled: %w", image, err)
	}
	return l.end(image, false)
}

// end counts one pull less; the intent goes with the last one unless it is kept.
func (l *Ledger) end(image string, keep bool) error {
	if l.counts[image]--; l.counts[image] > 0 {
		return nil
	}
	delete(l.counts, image)
	delete(l.unsure, image)
	if keep {
		return nil
	}
	return remove(l.pulling, image)
}

// add merges a grant into the record of an image, or begins one.
func (l *Ledger) add(image, ref string, by Grant) error {
	rec, err := l.read(ref)
	if unread(err) {
		return err
	}
	if err != nil || rec == nil { // a damaged record is replaced by a fresh one
		rec = &kubeletv1beta1.ImagePulledRecord{ImageRef: ref}
	}
	if rec.CredentialMapping == nil {
		rec.CredentialMapping = map[string]Grant{}
	}
	name := Repository(image)
	old, had := rec.CredentialMapping[name]
	merged := merge(old, by)
	if had && equal(old, merged) {
		return nil
	}
	rec.CredentialMapping[name] = bound(merged, by)
	leaveOut(rec.CredentialMapping, name)
	rec.TypeMeta, rec.LastUpdatedTime = typeMeta(kindPulled), metav1.Now()
	return l.write(l.pulled, ref, rec)
}

// MustPull tells whether an image that is present may be used only after a
// pull. has is asked only when it matters, for what the pod has.
func (l *Ledger) MustPull(log logr.Logger, image, ref string, has func() Grant) bool {
	if l.cfg.Policy == kubeletv1beta1.NeverVerify {
		return false
	}
	rec, err := l.read(ref) // without the lock: files are old or new, never half
	intended := l.intended(image)
	if err != nil {
		log.Error(err, "The record of an image's pull cannot be read; the image is pulled again to be sure", "image", image)
		return true
	}
	ours := rec != nil || intended
	if l.exempt(image, ours) {
		return false
	}
	if rec == nil {
		return true
	}
	known, ok := rec.CredentialMapping[Repository(image)]
	switch {
	case !ok:
		return true
	case known.NodePodsAccessible:
		return false
	case len(known.KubernetesSecrets) == 0 && len(known.KubernetesServiceAccounts) == 0:
		return true
	}
	by, ok := granted(known, has())
	if !ok {
		return true
	}
	if by != nil && len(known.KubernetesSecrets) <= mostGrants {
		l.mu.Lock()
		defer l.mu.Unlock()
		if err := l.add(image, ref, *by); err != nil {
			log.Error(err, "Could not note that other credentials give access to an image; it is noted next time", "image", image)
		}
	}
	return false
}

// exempt says whether the policy spares an image; ours is one that this agent,
// or the kubelet before it, has pulled.
func (l *Ledger) exempt(image string, ours bool) bool {
	switch l.cfg.Policy {
	case kubeletv1beta1.NeverVerify:
		return true
	case kubeletv1beta1.NeverVerifyPreloadedImages:
		return !ours
	case kubeletv1beta1.NeverVerifyAllowlistedImages:
		return !ours && Allowed(l.cfg.Allowlist, image)
	}
	return false
}

// intended tells that a pull of the image was begun and its end not noted.
func (l *Ledger) intended(image string) bool {
	_, err := os.Lstat(file(l.pulling, image))
	return !errors.Is(err, fs.ErrNotExist) // what cannot be looked at counts as there
}

// Run deals with the pulls of a previous run, see Recover, as soon as the runtime
// answers; it returns when that is done or ctx is. Until then their images count as
// pulled, so that nobody may use them unverified.
func (l *Ledger) Run(ctx context.Context, present func(ctx context.Context, image string) (ref string, err error)) {
	log := logr.FromContextOrDiscard(ctx)
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
	l.mu.Lock()
	fsatomic.Clean(l.pulling, "*")
	fsatomic.Clean(l.pulled, "*")
	l.mu.Unlock()
	intents, err := list[kubeletv1beta1.ImagePullIntent](l.pulling, kindIntent)
	errs = append(errs, err)
	for _, intent := range intents {
		ref, err := present(intent.Image)
		if err != nil {
			return fmt.Errorf("look for image %q, which was being pulled: %w", intent.Image, err)
		}
		errs = append(errs, l.recover(log, intent.Image, ref))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	records, err := list[kubeletv1beta1.ImagePulledRecord](l.pulled, kindPulled)
	errs = append(errs, err)
	for _, rec := range records {
		if rec.APIVersion != apiVersion {
			rec.TypeMeta = typeMeta(kindPulled)
			errs = append(errs, l.write(l.pulled, rec.ImageRef, &rec))
		}
	}
	return errors.Join(errs...)
}

// recover ends one intent of a previous run, unless the image is being pulled again.
func (l *Ledger) recover(log logr.Logger, image, ref string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts[image] > 0 {
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
	l.mu.Lock()
	defer l.mu.Unlock()
	records, err := list[kubeletv1beta1.ImagePulledRecord](l.pulled, kindPulled)
	var errs []error
	if err != nil {
		errs = append(errs, l.mendLocked(refs))
	}
	for _, rec := range records {
		if !slices.Contains(refs, rec.ImageRef) && rec.LastUpdatedTime.Time.Before(until) {
			errs = append(errs, remove(l.pulled, rec.ImageRef))
		}
	}
	return errors.Join(errs...)
}

// mendLocked sets the records aside that cannot be read. One of an image that is
// present is replaced at the same moment by one that grants nothing: without any, the
// image would pass for a preloaded one.
func (l *Ledger) mendLocked(refs []string) error {
	of := make(map[string]string, len(refs))
	for _, ref := range refs {
		of[file(l.pulled, ref)] = ref
	}
	entries, err := os.ReadDir(l.pulled)
	errs := []error{err}
	for _, e := range entries {
		path := filepath.Join(l.pulled, e.Name())
		if !isRecord(e.Name()) {
			continue
		}
		_, cause := decode[kubeletv1beta1.ImagePulledRecord](path, kindPulled)
		if cause == nil {
			continue
		}
		if unread(cause) {
			errs = append(errs, fmt.Errorf("the record of an image's pull cannot be read now, and stays: %w", cause))
			continue
		}
		aside := fsatomic.AsideOf(path)
		if ref := of[path]; ref != "" {
			err = l.swap(path, aside, ref)
		} else {
			err = os.Rename(path, aside)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the record of an image's pull is damaged and could not be set aside: %w; remove %s and the image by hand", errors.Join(cause, err), path))
			continue
		}
		errs = append(errs, fmt.Errorf("the record of an image's pull is damaged and was set aside as %s; the image is verified before it is used: %w", aside, cause))
	}
	return errors.Join(errs...)
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

// Refs are the references of the images that there are records of; records that cannot
// be read are left out.
func (l *Ledger) Refs() ([]string, error) {
	records, err := list[kubeletv1beta1.ImagePulledRecord](l.pulled, kindPulled)
	if len(records) == 0 && err != nil {
		return nil, err
	}
	refs := make([]string, 0, len(records))
	for i := range records {
		refs = append(refs, records[i].ImageRef)
	}
	return refs, nil
}

// Count is how many intents and records are on the disk.
func (l *Ledger) Count() (intents, pulled int) { return count(l.pulling), count(l.pulled) }

// Hash is the hash under which a credential is remembered.
func Hash(credential []byte) string {
	sum := sha256.Sum256(credential)
	return hex.EncodeToString(sum[:])
}

// Repository is an image's name without tag and digest, otherwise as it was
// written; the whole name when it cannot be understood.
func Repository(image string) string {
	parsed, err := reference.Parse(image)
	if err != nil {
		return image
	}
	name, _, _ := strings.Cut(image, "@")
	if parsed.Tag != "" {
		name = strings.TrimSuffix(name, ":"+parsed.Tag)
	}
	return name
}
