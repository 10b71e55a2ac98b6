package apiserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/answer"
	"github.com/polylet/polylet/services/nodestatus/internal/follow"
)

// watchAgain is the longest pause between two tries to watch the Node.
const watchAgain = 10 * time.Second

// Watch calls changed with the Node whenever it changed, and with nil when it
// was deleted, until ctx is done. It begins after resourceVersion.
func (n Node) Watch(ctx context.Context, resourceVersion string, changed func(*v1.Node)) error {
	failing := false
	ended := func(err error) {
		if err != nil && !failing {
			klog.FromContext(ctx).Info("Watch of the Node ended, opening it again", "err", err)
		}
		failing = err != nil
	}
	follow.One[*v1.Node]{
		Name: n.Name, Label: "Node " + n.Name, Read: n.list, Open: n.Client.Watch, Timeout: n.Timeout, Longest: watchAgain,
		Saw: func(there *v1.Node) {
			if there != nil {
				trim(there)
			}
			changed(there)
		},
		Unread: ended, Ended: ended,
	}.Follow(ctx, resourceVersion)
	return nil
}

// list reads the Node, nil when it is not there, with the version to watch it from.
func (n Node) list(ctx context.Context) (*v1.Node, string, error) {
	list, err := n.Client.List(ctx, metav1.ListOptions{FieldSelector: follow.Selector(n.Name)})
	if err := answer.List(list, err); err != nil {
		return nil, "", fmt.Errorf("list Node %s: %w", n.Name, err)
	}
	at := slices.IndexFunc(list.Items, func(is v1.Node) bool { return is.Name == n.Name })
	if at < 0 {
		return nil, list.ResourceVersion, nil
	}
	if err := answer.Object(&list.Items[at], n.Name, nil); err != nil {
		return nil, "", err
	}
	return &list.Items[at], list.ResourceVersion, nil
}
