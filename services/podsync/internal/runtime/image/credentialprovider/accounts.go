package credentialprovider

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/polylet/polylet/internal/answer"
)

// accountTimeout bounds the read of a service account.
const accountTimeout = 10 * time.Second

// FromClient reads service accounts from the apiserver, each time anew: what may
// be cached is what a plugin has answered.
func FromClient(client kubernetes.Interface) Accounts { return accounts{client} }

type accounts struct{ client kubernetes.Interface }

func (a accounts) ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	ctx, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	account, err := a.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if err = answer.Object(account, name, err); err != nil {
		return nil, err
	}
	return account, nil
}
