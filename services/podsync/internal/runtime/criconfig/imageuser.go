package criconfig

import (
	"context"
	"fmt"
	"sync"

	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/security"
)

// mostUsers bounds how many images' users are kept.
const mostUsers = 500

// imageUsers keeps whom images run as. A reference names an image by its
// content, so that what it says of one never changes. Safe for concurrent use.
type imageUsers struct {
	mu    sync.Mutex
	byRef map[string]security.ImageUser
}

func (u *imageUsers) get(ref string) (security.ImageUser, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	user, ok := u.byRef[ref]
	return user, ok
}

func (u *imageUsers) put(ref string, user security.ImageUser) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byRef == nil || len(u.byRef) >= mostUsers {
		u.byRef = map[string]security.ImageUser{}
	}
	u.byRef[ref] = user
}

// imageUser says whom the image runs as; the runtime is asked once.
func (b *Builder) imageUser(ctx context.Context, ref string) (security.ImageUser, error) {
	if user, ok := b.users.get(ref); ok {
		return user, nil
	}
	image, err := b.deps.Images.Image(ctx, ref)
	if err != nil {
		return security.ImageUser{}, fmt.Errorf("look up the user of image %q: %w", ref, err)
	}
	if image == nil {
		return security.ImageUser{}, fmt.Errorf("image %q is not present any more", ref)
	}
	user := security.ImageUser{Name: image.Username}
	if image.Uid != nil {
		uid := image.Uid.Value
		user = security.ImageUser{UID: &uid}
	}
	b.users.put(ref, user)
	return user, nil
}
