package inventory

import (
	"context"
	"fmt"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// Partial says that a list is not of all images, and why.
type Partial struct{ Err error }

// Error implements error.
func (p *Partial) Error() string { return "some images are missing: " + p.Err.Error() }

// Unwrap returns why.
func (p *Partial) Unwrap() error { return p.Err }

// ImageClient is what is asked of the runtime about images; *cri.Client has it.
type ImageClient interface {
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	Image(ctx context.Context, name string) (*runtimeapi.Image, error)
}

// Images lists images, also when they do not fit into one of the runtime's
// messages, as an image with thousands of names makes it: then each is asked for that
// pods or the records of pulls name. Safe for concurrent use.
type Images struct {
	Client ImageClient
	// Names are what is asked for then.
	Names func() ([]string, error)
	// Health is told of images that are missing.
	Health health.Reporter
}

// mostNamed is how many images are named at once that are too large.
const mostNamed = 5

// List returns the images; with *Partial those that could be found.
func (l *Images) List(ctx context.Context) ([]*runtimeapi.Image, error) {
	images, err := l.Client.ListImages(ctx)
	if !cri.IsTooLarge(err) {
		if err == nil {
			l.Health.Set("images", true, "")
		}
		return images, err
	}
	names, why := l.Names()
	if why != nil {
		return nil, fmt.Errorf("find the images that are to be asked for one by one: %w", why)
	}
	found, missing, why := l.each(ctx, names)
	if why != nil {
		return nil, why
	}
	text := "what the container runtime has of images does not fit into one of its messages; only those that pods and records of pulls name are seen, others are not collected: look for images with very many names (crictl images), and remove them"
	text += named("too large even by themselves", missing.tooLarge) + named("not found, since the runtime cannot tell what these names mean", missing.refused)
	l.Health.Set("images", false, text)
	return found, &Partial{Err: err}
}

// named is what some names are, for a message; empty of none.
func named(what string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	text := "; " + what + ": " + strings.Join(names[:min(len(names), mostNamed)], ", ")
	if more := len(names) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// missing are the names of which nothing is known: what they name is too large, or the
// runtime refuses them, as one that is the beginning of several images' digests. Whoever
// makes pods chooses such names; they are no reason to know nothing of all others.
type missing struct{ tooLarge, refused []string }

// each asks for images one by one. It fails when the runtime is not there to answer, or
// refuses all names.
func (l *Images) each(ctx context.Context, names []string) (found []*runtimeapi.Image, without missing, err error) {
	slices.Sort(names)
	names = slices.Compact(names)
	seen := map[string]bool{}
	for _, name := range names {
		img, err := l.Client.Image(ctx, name)
		if err != nil && !cri.IsTooLarge(err) {
			without.refused = append(without.refused, name)
			if cri.IsUnsure(err) || len(without.refused) == len(names) {
				return nil, missing{}, fmt.Errorf("ask for image %q, since all are too many for one message: %w", name, err)
			}
			continue
		}
		switch {
		case err != nil:
			without.tooLarge = append(without.tooLarge, name)
		case img != nil && !seen[img.GetId()]:
			seen[img.GetId()] = true
			found = append(found, img)
		}
	}
	return found, without, nil
}
