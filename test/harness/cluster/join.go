package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// bootstrappers is the group of the nodes' bootstrap tokens.
const bootstrappers = "system:bootstrappers:polylet"

// The ClusterRoles by which a node may ask for its first certificate, and by which the
// controller manager approves the first one and the next ones.
const (
	mayAsk       = "system:node-bootstrapper"
	firstByToken = "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
	nextByItself = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"
)

// BootstrapKubeconfig writes a kubeconfig with a bootstrap token that is good for as long
// as is said, and returns its path. What is asked for with it somebody has to approve.
func (c *Cluster) BootstrapKubeconfig(ctx context.Context, id string, good time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	const secret = "0123456789abcdef"
	token := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id, Namespace: metav1.NamespaceSystem},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true", "auth-extra-groups": bootstrappers,
			"expiration": time.Now().Add(good).UTC().Format(time.RFC3339),
		},
	}
	if _, err := c.Client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, token, metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("make a bootstrap token: %w", err)
	}
	if err := c.bind(ctx, mayAsk, bootstrappers); err != nil {
		return "", err
	}
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["kubernetes"] = &clientcmdapi.Cluster{Server: c.Server, CertificateAuthority: c.keys.ca.file}
	cfg.AuthInfos["tls-bootstrap-token-user"] = &clientcmdapi.AuthInfo{Token: id + "." + secret}
	cfg.Contexts["tls-bootstrap"] = &clientcmdapi.Context{Cluster: "kubernetes", AuthInfo: "tls-bootstrap-token-user"}
	cfg.CurrentContext = "tls-bootstrap"
	if err := clientcmdapi.FlattenConfig(cfg); err != nil {
		return "", fmt.Errorf("write a bootstrap kubeconfig: %w", err)
	}
	path := c.cfg.Instance.Path("cluster", "bootstrap-"+id+".kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		return "", fmt.Errorf("write a bootstrap kubeconfig: %w", err)
	}
	return path, nil
}

// ApproveNodes has the controller manager approve what nodes ask for as clients, as
// kubeadm does.
func (c *Cluster) ApproveNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	if err := c.bind(ctx, firstByToken, bootstrappers); err != nil {
		return err
	}
	return c.bind(ctx, nextByItself, "system:nodes")
}

func (c *Cluster) bind(ctx context.Context, role, group string) error {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "polylet:" + role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
	}
	_, err := c.Client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("give %s to %s: %w", role, group, err)
	}
	return nil
}

// signing are the controller manager's flags about what it signs.
func (c *Cluster) signing() []string {
	if c.cfg.SigningDuration == 0 {
		return nil
	}
	return []string{"--cluster-signing-duration=" + c.cfg.SigningDuration.String()}
}

// verifyNodes are the apiserver's flags about the nodes' serving certificates.
func (c *Cluster) verifyNodes() []string {
	if !c.cfg.VerifyNodes {
		return nil
	}
	return []string{"--kubelet-certificate-authority=" + c.keys.ca.file}
}
