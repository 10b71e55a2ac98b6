package observe

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// firstLook is how long other services are kept waiting at most, from the first list on, for
// what the runtime has of every pod of it: one that it cannot say holds up no others. stats
// keeps a kill back for ten seconds until it has the container's name.
const firstLook = 5 * time.Second

// awaitWhole says to other services when all pods of the first list were looked at. Before,
// they would take those that were not for pods that have ended.
func (o *Observer) awaitWhole(ctx context.Context) {
	if o.table.rows == nil {
		return
	}
	late := time.NewTimer(firstLook)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return
	case <-o.table.whole:
	case <-late.C:
	}
	o.table.rows.SetWhole()
}

// awaitLocked has the pods of the first list waited for that have to be looked at.
func (t *table) awaitLocked(todo map[types.UID]*work) {
	t.unseen = make(map[types.UID]bool, len(todo))
	for uid := range todo {
		t.unseen[uid] = true
	}
	if len(todo) == 0 {
		close(t.whole)
	}
}

// sawLocked takes in that a pod was looked at.
func (t *table) sawLocked(uid types.UID) {
	if !t.unseen[uid] {
		return
	}
	delete(t.unseen, uid)
	if len(t.unseen) == 0 {
		close(t.whole)
	}
}
