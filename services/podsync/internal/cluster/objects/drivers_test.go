package objects

import (
	"testing"
	"testing/synctest"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestADriverIsFollowedUntilItIsLeft(t *testing.T) {
	inBubble(t, fakeapiserver.Config{}, func(t *testing.T, b *bench) {
		told := 0
		b.store.mu.Lock()
		b.store.subscribers = append(b.store.subscribers, func(key Key, _ []types.UID) {
			if key.Kind == CSIDriver && key.Name == "d" {
				told++
			}
		})
		b.store.mu.Unlock()
		b.store.FollowDriver("d")
		synctest.Wait()
		create := func() {
			if _, err := b.admin.StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		remove := func() {
			if err := b.admin.StorageV1().CSIDrivers().Delete(t.Context(), "d", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		create()
		if _, err := b.store.CSIDriver(t.Context(), "d"); err != nil || told != 1 {
			t.Errorf("told %d times, %v", told, err)
		}
		b.store.LeaveDriver("d")
		synctest.Wait()
		remove()
		create()
		if told != 1 {
			t.Errorf("told %d times of a driver that was left", told)
		}
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		if len(b.store.entries) != 1 { // the Node's
			t.Errorf("%d objects are watched", len(b.store.entries))
		}
	})
}
