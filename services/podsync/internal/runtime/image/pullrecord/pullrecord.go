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
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/turn"
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

	// files are turns at records and intents: what is read of one is still so when it
	// is written. Who has the turn at an image's intent may take that at its record.
	files turn.Turns
	// swept removes what writes of a previous run have left, before the first of this.
	swept sync.Once
	store func(path string, data []byte, mode os.FileMode) error

	mu     sync.Mutex     // never held while a file is read or written
	counts map[string]int // pulls under way, by image; changed by who has the turn at its intent
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
	return &Ledger{cfg: cfg, pulling: filepath.Join(dir, "pulling"), pulled: filepath.Join(dir, "pulled"), store: fsatomic.WriteFile, counts: map[string]int{}, unsure: map[string]bool{}}
}

// Begin notes that a pull of an image begins. Each call is followed by one of
// Pulled, Failed or Unsure. An error means that the image must not be pulled: it could
// pass for a preloaded one after a crash.
func (l *Ledger) Begin(image string) error {
	defer l.turn(l.pulling, image)()
	if l.underWay(image) == 0 {
		unsure := l.intended(image)
		intent := &kubeletv1beta1.ImagePullIntent{TypeMeta: typeMeta(kindIntent), Image: image}
		if err := l.write(l.pulling, image, intent); err != nil {
			return fmt.Errorf("note that image %q is about to be pulled: %w", image, err)
		}
		l.setUnsure(image, unsure)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[image]++
	return nil
}

// turn waits for the turn at the file about a name.
func (l *Ledger) turn(dir, name string) (done func()) {
	done = l.files.Take(file(dir, name))
	l.sweep()
	return done
}

// sweep may be called by several: all wait until nothing of a previous run is left
// that could be taken for a write under way.
func (l *Ledger) sweep() {
	l.swept.Do(func() {
		fsatomic.Clean(l.pulling, "*")
		fsatomic.Clean(l.pulled, "*")
	})
}

func (l *Ledger) underWay(image string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[image]
}

func (l *Ledger) setUnsure(image string, unsure bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsure[image] = unsure
}

// Failed notes that a pull came to nothing.
func (l *Ledger) Failed(image string) error {
	defer l.turn(l.pulling, image)()
	return l.end(image, false)
}

// Unsure notes that nobody knows how a pull ended: it was given up, or the
// runtime went away. The intent stays until a pull succeeds or Recover looks.
func (l *Ledger) Unsure(image string) error {
	defer l.turn(l.pulling, image)()
	l.setUnsure(image, true)
	return l.end(image, false)
}

// Pulled notes that the image with this reference was pulled, and what for.
// Until its record is on the disk, the intent stays, so that the image is
// verified in any case.
func (l *Ledger) Pulled(image, ref string, by Grant) error {
	defer l.turn(l.pulling, image)()
	if err := l.add(image, ref, by); err != nil {
		l.setUnsure(image, true)
		_ = l.end(image, false)
		return fmt.Errorf("note that image %q was pulled: %w", image, err)
	}
	return l.end(image, true)
}

// end counts one pull less; the intent goes with the last one, unless nobody knows how
// one ended and this one was not noted. Its caller has the turn at the intent.
func (l *Ledger) end(image string, noted bool) error {
	l.mu.Lock()
	keep := l.unsure[image] && !noted
	l.counts[image]--
	last := l.counts[image] <= 0
	if last {
		delete(l.counts, image)
		delete(l.unsure, image)
	}
	l.mu.Unlock()
	if !last || keep {
		return nil
	}
	return remove(l.pulling, image)
}

// add merges a grant into the record of an image, or begins one.
func (l *Ledger) add(image, ref string, by Grant) error {
	defer l.turn(l.pulled, ref)()
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
	// Without a turn: files are old or new, never half. The intent is looked at first,
	// as a pull that ends writes its record before its intent goes: in the other order
	// both could be missed, and the image pass for a preloaded one.
	intended := l.intended(image)
	rec, err := l.read(ref)
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
