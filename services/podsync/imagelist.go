package podsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/imagegc"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// imageClient is what is asked of the runtime about images; *cri.Client has it.
type imageClient interface {
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	Image(ctx context.Context, name string) (*runtimeapi.Image, error)
}

// imageList lists images, also when they do not fit into one of the runtime's
// messages, as an image with thousands of names makes it: then each is asked for that
// pods or the records of pulls name. Safe for concurrent use.
type imageList struct {
	client imageClient
	// names are what is asked for then.
	names  func() ([]string, error)
	health health.Reporter
}

// mostImagesNamed is how many images are named at once that are too large.
const mostImagesNamed = 5

// list returns the images; with *imagegc.Partial those that could be found.
func (l *imageList) list(ctx context.Context) ([]*runtimeapi.Image, error) {
	images, err := l.client.ListImages(ctx)
	if !cri.IsTooLarge(err) {
		if err == nil {
			l.health.Set("images", true, "")
		}
		return images, err
	}
	names, why := l.names()
	if why != nil {
		return nil, fmt.Errorf("find the images that are to be asked for one by one: %w", why)
	}
	found, tooLarge, why := l.each(ctx, names)
	if why != nil {
		return nil, why
	}
	text := "what the container runtime has of images does not fit into one of its messages; only those that pods and records of pulls name are seen, others are not collected: look for images with very many names (crictl images), and remove them"
	if len(tooLarge) > 0 {
		text += "; too large even by themselves: " + strings.Join(tooLarge[:min(len(tooLarge), mostImagesNamed)], ", ")
		if more := len(tooLarge) - mostImagesNamed; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
	}
	l.health.Set("images", false, text)
	return found, &imagegc.Partial{Err: err}
}

// each asks for images one by one, and says which are too large even for that.
func (l *imageList) each(ctx context.Context, names []string) (found []*runtimeapi.Image, tooLarge []string, err error) {
	slices.Sort(names)
	seen := map[string]bool{}
	for _, name := range slices.Compact(names) {
		img, err := l.client.Image(ctx, name)
		switch {
		case cri.IsTooLarge(err):
			tooLarge = append(tooLarge, name)
		case err != nil:
			return nil, nil, fmt.Errorf("ask for image %q, since all are too many for one message: %w", name, err)
		case img != nil && !seen[img.GetId()]:
			seen[img.GetId()] = true
			found = append(found, img)
		}
	}
	return found, tooLarge, nil
}

// imageNames are those that pods and the records of pulls have.
func (s *Service) imageNames() (names []string, err error) {
	for _, pod := range s.pods.List() {
		names = append(names, imagesOf(pod.Pod)...)
	}
	if s.pulls != nil {
		refs, err := s.pulls.Refs()
		return append(names, refs...), err
	}
	return names, nil
}

// listedImages is the runtime for the server, whose images are listed however many
// names they have.
type listedImages struct {
	heldRuntime
	images *imageList
}

// ListImages implements server.Runtime.
func (l listedImages) ListImages(ctx context.Context, _ *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	images, err := l.images.list(ctx)
	if partial := (*imagegc.Partial)(nil); errors.As(err, &partial) {
		err = nil // health names it
	}
	return &runtimeapi.ListImagesResponse{Images: images}, err
}
