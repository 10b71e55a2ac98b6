package assigned

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/answer"
	"github.com/polylet/polylet/services/nodestatus/internal/follow"
)

// readAgain is the longest pause between two tries to watch a ConfigMap, and so between
// two looks at one that may not be watched, as kubeadm's own Role has it.
const readAgain = time.Minute

// Run follows what is named, and writes what has become of it, until ctx is done.
func (k *Keeper) Run(ctx context.Context) error {
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() { k.write(ctx) })
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-k.moved:
		}
		for k.followNamed(ctx) {
		}
	}
	return nil
}

// followNamed follows the ConfigMap that is named until another is; true: one is.
func (k *Keeper) followNamed(parent context.Context) (another bool) {
	text, seen := k.named()
	if !seen {
		return false
	}
	if text == "" {
		k.assign(parent, nil)
		return false
	}
	ref, err := parse(text)
	if err != nil {
		k.fail(parent, err.Error())
		return false
	}
	ctx, stop := context.WithCancel(parent)
	var following sync.WaitGroup
	defer following.Wait()
	defer stop()
	following.Go(func() { k.follow(ctx, ref) })
	for {
		select {
		case <-parent.Done():
			return false
		case <-k.moved:
			if now, _ := k.named(); now != text {
				return true
			}
		}
	}
}

// follow follows one ConfigMap until ctx is done.
func (k *Keeper) follow(ctx context.Context, ref reference) {
	maps := k.cfg.ConfigMaps.ConfigMaps(ref.namespace)
	follow.One[*v1.ConfigMap]{
		Name: ref.name, Label: ref.String(), Open: maps.Watch, Timeout: k.cfg.Timeout, Longest: readAgain,
		Read: func(ctx context.Context) (*v1.ConfigMap, string, error) {
			there, err := maps.Get(ctx, ref.name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil, "", nil
			}
			if err := answer.Object(there, ref.name, err); err != nil {
				return nil, "", err
			}
			// Not from its own version, which an apiserver may have forgotten.
			return there, "", nil
		},
		Saw: func(there *v1.ConfigMap) { k.take(ctx, ref, there) },
		Unread: func(err error) {
			k.fail(ctx, fmt.Sprintf("%s cannot be read: %v; what was assigned before stays. Nodes need get, list and watch of it: a Role, and a RoleBinding for the group system:nodes", ref, err))
		},
	}.Follow(ctx, "")
}

// take takes in a ConfigMap as it is; nil: it is not there.
func (k *Keeper) take(ctx context.Context, ref reference, there *v1.ConfigMap) {
	if there == nil {
		k.fail(ctx, fmt.Sprintf("%s, which the annotation %s names, is not there; what was assigned before stays", ref, Annotation))
		return
	}
	d, err := document(there, ref)
	if err != nil {
		k.fail(ctx, err.Error()+"; what was assigned before stays")
		return
	}
	k.assign(ctx, d)
}
