package cluster

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// bootstrap lets the apiserver use the node's API, and without a controller
// manager does what pods need of one: the default service account and the
// authority's ConfigMap that every pod's token volume projects.
func (c *Cluster) bootstrap(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "polylet:kubelet-clients"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kubelet-api-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "polylet:kubelet-clients"}},
	}
	_, err := c.Client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("let the apiserver use the node's API: %w", err)
	}
	if c.cfg.Controllers {
		return nil
	}
	return c.PrepareNamespace(ctx, metav1.NamespaceDefault)
}

// Namespace creates a namespace in which pods can be created at once.
func (c *Cluster) Namespace(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	if !c.cfg.Controllers {
		return c.PrepareNamespace(ctx, name)
	}
	return c.waitNamespace(ctx, name)
}

// PrepareNamespace makes what the controller manager would make.
func (c *Cluster) PrepareNamespace(ctx context.Context, name string) error {
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := c.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for namespace %s: %w", name, err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := c.Client.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the default service account in %s: %w", name, err)
	}
	ca, err := os.ReadFile(c.keys.ca.file)
	if err != nil {
		return err
	}
	root := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": string(ca)}}
	if _, err := c.Client.CoreV1().ConfigMaps(name).Create(ctx, root, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create kube-root-ca.crt in %s: %w", name, err)
	}
	return nil
}

func (c *Cluster) waitNamespace(ctx context.Context, name string) error {
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if _, err := c.Client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return false, nil
		}
		_, err := c.Client.CoreV1().ConfigMaps(name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the default service account in %s: %w; see %s", name, err, c.path("kube-controller-manager.log"))
	}
	return nil
}
