package podcertificate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/types"
)

// says is what the series show.
func (c *Cache) says(t *testing.T, lines ...string) {
	t.Helper()
	want := ""
	if len(lines) > 0 {
		want = "# HELP kubelet_podcertificate_states Gauge vector reporting the number of pod certificate projected volume sources, faceted by signer_name and state.\n# TYPE kubelet_podcertificate_states gauge\n"
	}
	for _, line := range lines {
		want += "kubelet_podcertificate_states" + line + "\n"
	}
	if err := testutil.CollectAndCompare(NewSeries(c), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestCertificatesAreCountedByTheirSignerAndState(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cache, api *cluster) {
		c.says(t)
		_, _ = c.Get(t.Context(), request())
		c.says(t, `{signer_name="x/y",state="not_yet_issued"} 1`)
		api.says(certificatesv1beta1.PodCertificateRequestConditionTypeIssued)
		cred, err := c.Get(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		c.says(t, `{signer_name="x/y",state="fresh"} 1`)
		time.Sleep(time.Until(cred.Refresh) + time.Minute)
		c.says(t, `{signer_name="x/y",state="fresh"} 1`)
		time.Sleep(overdueAfter)
		c.says(t, `{signer_name="x/y",state="overdue_for_refresh"} 1`)
		time.Sleep(time.Hour)
		c.says(t, `{signer_name="x/y",state="expired"} 1`)
		for kind, state := range map[string]string{
			certificatesv1beta1.PodCertificateRequestConditionTypeDenied: "denied", certificatesv1beta1.PodCertificateRequestConditionTypeFailed: "failed",
		} {
			r := request()
			r.Pod.UID, r.Source.SignerName = "other", "z/"+state
			_, _ = c.Get(t.Context(), r)
			api.says(kind)
			_, _ = c.Get(t.Context(), r)
			c.says(t, `{signer_name="x/y",state="expired"} 1`, fmt.Sprintf(`{signer_name="z/%s",state=%q} 1`, state, state))
			c.Forget("other")
		}
		c.Forget("u")
		c.says(t)
	})
}

// TestNobodyWaitsForACertificateToCountThem: who asks for one has its turn for seconds.
func TestNobodyWaitsForACertificateToCountThem(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cache, _ *cluster) {
		s, _ := c.slot(request())
		s.turn <- struct{}{}
		c.says(t, `{signer_name="x/y",state="not_yet_issued"} 1`)
	})
}

func TestPodsDoNotMakeAnyNumberOfSeries(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cache, _ *cluster) {
		for i := range mostSigners + 3 {
			r := request()
			r.Pod.UID = types.UID(fmt.Sprint(i))
			r.Source.SignerName = fmt.Sprintf("s/%03d", i)
			if _, ok := c.slot(r); !ok {
				t.Fatal(i)
			}
		}
		counts := c.count(time.Now())
		if len(counts) != mostSigners+1 || counts[[2]string{otherSigners, notYetIssued}] != 3 {
			t.Errorf("%d series, and others are %d", len(counts), counts[[2]string{otherSigners, notYetIssued}])
		}
	})
	if n := testutil.CollectAndCount(NewSeries(nil)); n != 0 {
		t.Errorf("without certificates there are %d series", n)
	}
}
