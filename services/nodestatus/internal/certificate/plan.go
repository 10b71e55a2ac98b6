package certificate

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	netutils "k8s.io/utils/net"
)

// earliest and latest are between which parts of a certificate's life it is renewed,
// as by client-go's certificate manager.
const (
	earliest = 0.7
	latest   = 0.9
)

// nodePrefix is before a node's name in the name of its user.
const nodePrefix = "system:node:"

// Subject is whom a node's certificates are for.
func Subject(nodeName string) pkix.Name {
	return pkix.Name{CommonName: nodePrefix + nodeName, Organization: []string{"system:nodes"}}
}

// ClientRequest is what a node asks for as a client.
func ClientRequest(nodeName string) *x509.CertificateRequest {
	return &x509.CertificateRequest{Subject: Subject(nodeName)}
}

// ServingRequest is what a node with these addresses asks for as a server; nil, and
// why, as long as it has none that a certificate can be for. With dnsOnly (the gate
// AllowDNSOnlyNodeCSR) a name is enough, else there has to be an IP address.
func ServingRequest(nodeName string, addresses []v1.NodeAddress, dnsOnly bool) (request *x509.CertificateRequest, why string) {
	names, ips := map[string]bool{}, map[string]bool{}
	for _, a := range addresses {
		ip := netutils.ParseIPSloppy(a.Address)
		switch {
		case a.Address == "":
		case ip != nil && a.Type != v1.NodeInternalDNS && a.Type != v1.NodeExternalDNS:
			ips[ip.String()] = true
		case ip == nil && (a.Type == v1.NodeHostName || a.Type == v1.NodeInternalDNS || a.Type == v1.NodeExternalDNS):
			names[a.Address] = true
		}
	}
	if len(ips) == 0 && (!dnsOnly || len(names) == 0) {
		return nil, "the node has no IP address yet that its serving certificate could be for: it gets one from --node-ip, from its hostname or, with --cloud-provider=external, from the cloud's controller"
	}
	request = &x509.CertificateRequest{Subject: Subject(nodeName), DNSNames: sorted(names)}
	for _, text := range sorted(ips) {
		request.IPAddresses = append(request.IPAddresses, net.ParseIP(text))
	}
	return request, ""
}

func sorted(set map[string]bool) []string {
	var out []string
	for text := range set {
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// OfAnother says that a client certificate is another node's; empty when it is not, and
// when it is no node's at all, which an apiserver may have a use for.
func OfAnother(leaf *x509.Certificate, nodeName string) string {
	want := nodePrefix + nodeName
	if !strings.HasPrefix(leaf.Subject.CommonName, nodePrefix) || leaf.Subject.CommonName == want {
		return ""
	}
	return wrongName(leaf, want)
}

func wrongName(leaf *x509.Certificate, want string) string {
	return fmt.Sprintf("it is for %q and this node is %q (--hostname-override, or the hostname)", leaf.Subject.CommonName, want)
}

// lacks says what a certificate does not have that is wanted; empty when nothing. More
// than is wanted is no lack.
func lacks(leaf *x509.Certificate, want *x509.CertificateRequest) string {
	if leaf.Subject.CommonName != want.Subject.CommonName {
		return wrongName(leaf, want.Subject.CommonName)
	}
	var missing []string
	for _, group := range want.Subject.Organization {
		if !slices.Contains(leaf.Subject.Organization, group) {
			missing = append(missing, "group "+group)
		}
	}
	for _, name := range want.DNSNames {
		if !slices.Contains(leaf.DNSNames, name) {
			missing = append(missing, name)
		}
	}
	for _, ip := range want.IPAddresses {
		if !slices.ContainsFunc(leaf.IPAddresses, ip.Equal) {
			missing = append(missing, ip.String())
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return "it is not for " + strings.Join(missing, ", ")
}

// unfit says that a certificate is not for what it was asked for: whoever is shown it would
// refuse it. One that names no purpose is for all.
func (c Config) unfit(leaf *x509.Certificate) string {
	want, name := x509.ExtKeyUsageClientAuth, certificatesv1.UsageClientAuth
	if slices.Contains(c.Usages, certificatesv1.UsageServerAuth) {
		want, name = x509.ExtKeyUsageServerAuth, certificatesv1.UsageServerAuth
	}
	if len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) == 0 || slices.Contains(leaf.ExtKeyUsage, want) || slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny) {
		return ""
	}
	return fmt.Sprintf("it is not for %q", name)
}

// due says from when on another certificate is to be asked for, and why.
func due(leaf *x509.Certificate, want *x509.CertificateRequest, rotate, borrowed bool) (at time.Time, why string) {
	switch {
	case leaf == nil:
		return time.Time{}, "there is none"
	case !rotate:
		return leaf.NotAfter, "it has ended"
	case lacks(leaf, want) != "":
		return time.Time{}, lacks(leaf, want)
	case borrowed:
		return time.Time{}, "it is the one that the kubeconfig came with"
	}
	return renewAt(leaf), "most of its life is over"
}

// renewAt is a moment between 70 and 90 percent of a certificate's life: always the same
// for one certificate, whatever is restarted meanwhile, and another for each, so that
// nodes that joined together do not ask together for ever.
func renewAt(leaf *x509.Certificate) time.Time {
	sum := sha256.Sum256(leaf.Raw)
	part := float64(binary.BigEndian.Uint64(sum[:8])) / math.MaxUint64
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	return leaf.NotBefore.Add(time.Duration(float64(life) * (earliest + (latest-earliest)*part)))
}

// requestName is the name of the request for a certificate: always the same for one key
// and one wish, so that whoever asks again after a restart finds the request that
// somebody may have approved meanwhile.
func requestName(key crypto.PublicKey, want *x509.CertificateRequest, signer string) (string, error) {
	public, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("name a certificate signing request: %w", err)
	}
	sum := sha256.New()
	parts := append([]string{string(public), signer, want.Subject.String()}, want.DNSNames...)
	for _, ip := range want.IPAddresses {
		parts = append(parts, ip.String())
	}
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return "node-csr-" + hex.EncodeToString(sum.Sum(nil)[:20]), nil
}

// equal says whether two wishes are the same.
func equal(a, b *x509.CertificateRequest) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Subject.String() == b.Subject.String() && slices.Equal(a.DNSNames, b.DNSNames) &&
		slices.EqualFunc(a.IPAddresses, b.IPAddresses, net.IP.Equal)
}
