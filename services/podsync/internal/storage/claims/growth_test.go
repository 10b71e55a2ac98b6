package claims

import (
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sized is a claim that wants, has and is being given these sizes; empty for none.
func sized(wants, has, allocated string, status v1.ClaimResourceStatus, modes ...v1.PersistentVolumeAccessMode) *v1.PersistentVolumeClaim {
	list := func(size string) v1.ResourceList {
		if size == "" {
			return nil
		}
		return v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
	}
	c := &v1.PersistentVolumeClaim{
		Spec:   v1.PersistentVolumeClaimSpec{AccessModes: modes, Resources: v1.VolumeResourceRequirements{Requests: list(wants)}},
		Status: v1.PersistentVolumeClaimStatus{Capacity: list(has), AllocatedResources: list(allocated)},
	}
	if status != "" {
		c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: status}
	}
	return c
}

func TestWhatIsDoneAboutAVolumeThatIsLargerFollowsFromItsClaim(t *testing.T) {
	shared := sized("2Gi", "2Gi", "2Gi", "", v1.ReadWriteMany)
	notHere := shared.DeepCopy()
	notHere.Annotations = map[string]string{"volume.kubernetes.io/node-expansion-not-required": "yes"}
	for name, c := range map[string]struct {
		claim  *v1.PersistentVolumeClaim
		failed bool
		want   Growth
		to     string
	}{
		"an old controller":                    {claim: sized("2Gi", "1Gi", "", ""), want: Growth{Ask: true}},
		"an old controller, another node":      {claim: sized("2Gi", "2Gi", "", ""), want: Growth{Ask: true, Told: true}},
		"pending":                              {claim: sized("2Gi", "1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizePending), want: Growth{Ask: true, Recovers: true}},
		"pending, and nothing says how much":   {claim: sized("2Gi", "1Gi", "", v1.PersistentVolumeClaimNodeResizePending), want: Growth{Ask: true, Recovers: true}},
		"pending, and the claim has the size":  {claim: sized("2Gi", "2Gi", "2Gi", v1.PersistentVolumeClaimNodeResizePending), want: Growth{Ask: true, Recovers: true}},
		"more is wanted by now":                {claim: sized("3Gi", "1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizeInProgress), want: Growth{Ask: true, Recovers: true}},
		"it failed, and more is wanted by now": {claim: sized("3Gi", "1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizeInProgress), failed: true, want: Growth{Ask: true, Recovers: true, LetGo: true}},
		"in progress":                          {claim: sized("2Gi", "1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizeInProgress), want: Growth{Ask: true, Recovers: true}},
		"less is given than the volume has":    {claim: sized("1500Mi", "1Gi", "1500Mi", v1.PersistentVolumeClaimNodeResizePending), want: Growth{Ask: true, Recovers: true}, to: "1500Mi"},
		"infeasible":                           {claim: sized("2Gi", "1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizeInfeasible), want: Growth{Recovers: true}},
		"the controller's turn":                {claim: sized("2Gi", "1Gi", "2Gi", v1.PersistentVolumeClaimControllerResizeInProgress), want: Growth{Recovers: true}},
		"done by the controller alone":         {claim: sized("2Gi", "2Gi", "2Gi", ""), want: Growth{Has: true, Told: true, Recovers: true}},
		"shared, and grown on another node":    {claim: shared, want: Growth{Ask: true, Told: true, Recovers: true}},
		"shared, and needs no node":            {claim: notHere, want: Growth{Has: true, Told: true, Recovers: true}},
		"it failed":                            {claim: sized("2Gi", "1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizeInProgress), failed: true, want: Growth{Ask: true, Recovers: true}},
		"it failed, and less is wanted by now": {claim: sized("1500Mi", "1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizeInProgress), failed: true, want: Growth{Ask: true, Recovers: true, LetGo: true}},
	} {
		got := Grow(c.claim, resource.MustParse("2Gi"), c.failed)
		want := resource.MustParse("2Gi")
		if c.to != "" {
			want = resource.MustParse(c.to)
		}
		if got.To.Cmp(want) != 0 {
			t.Errorf("%s: to %s", name, got.To.String())
		}
		got.To = resource.Quantity{}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestAClaimIsExpectedToChangeWhileItGrows(t *testing.T) {
	for _, c := range []struct {
		claim *v1.PersistentVolumeClaim
		want  bool
	}{
		{sized("1Gi", "1Gi", "", ""), false},
		{sized("2Gi", "1Gi", "", ""), true},
		{sized("2Gi", "1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizePending), true},
		{sized("1Gi", "1Gi", "1Gi", v1.PersistentVolumeClaimNodeResizePending), true},
		{sized("2Gi", "1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizeInfeasible), false},
		{sized("2Gi", "1Gi", "2Gi", v1.PersistentVolumeClaimControllerResizeInfeasible), false},
	} {
		if got := Growing(c.claim); got != c.want {
			t.Errorf("%+v: %v", c.claim.Status, got)
		}
	}
}

func TestAClaimsStatusSaysHowItsGrowthWent(t *testing.T) {
	claim := sized("2Gi", "1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizePending)
	claim.Status.Conditions = []v1.PersistentVolumeClaimCondition{
		{Type: "Other", Status: v1.ConditionTrue}, {Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue},
	}
	before := claim.DeepCopy()
	if got := Begun(claim).Status.AllocatedResourceStatuses[v1.ResourceStorage]; got != v1.PersistentVolumeClaimNodeResizeInProgress {
		t.Errorf("begun: %s", got)
	}
	failed := NotGrown(claim, errors.New("no"), false, metav1.Now())
	if c := failed.Status.Conditions; len(c) != 3 || c[2].Type != v1.PersistentVolumeClaimNodeResizeError || c[2].Message != "failed to expand pvc with no" ||
		failed.Status.AllocatedResourceStatuses[v1.ResourceStorage] != v1.PersistentVolumeClaimNodeResizePending {
		t.Errorf("failed: %+v", failed.Status)
	}
	if again := NotGrown(failed, errors.New("never"), true, metav1.Now()); len(again.Status.Conditions) != 3 ||
		again.Status.AllocatedResourceStatuses[v1.ResourceStorage] != v1.PersistentVolumeClaimNodeResizeInfeasible {
		t.Errorf("infeasible: %+v", again.Status)
	}
	grown := Grown(failed, resource.MustParse("2Gi"))
	if s := grown.Status; len(s.Conditions) != 1 || s.Conditions[0].Type != "Other" || s.AllocatedResourceStatuses != nil || Size(grown).String() != "2Gi" ||
		len(s.AllocatedResources) != 1 {
		t.Errorf("grown: %+v", s)
	}
	if Size(claim).String() != "1Gi" || !slices.Equal(claim.Status.Conditions, before.Status.Conditions) ||
		claim.Status.AllocatedResourceStatuses[v1.ResourceStorage] != v1.PersistentVolumeClaimNodeResizePending {
		t.Errorf("the claim itself was changed: %+v", claim.Status)
	}
}

// TestAClaimThatSaysNothingYetIsGivenWhatIsToBeSaid: a controller may have written none of it.
func TestAClaimThatSaysNothingYetIsGivenWhatIsToBeSaid(t *testing.T) {
	claim := sized("2Gi", "", "", "")
	if got := Begun(claim).Status.AllocatedResourceStatuses[v1.ResourceStorage]; got != v1.PersistentVolumeClaimNodeResizeInProgress {
		t.Errorf("begun: %s", got)
	}
	if got := Size(Grown(claim, resource.MustParse("2Gi"))); got.String() != "2Gi" {
		t.Errorf("grown to %s", got)
	}
}

// TestWhatAClaimSaysOfOtherThingsStays, and of its growth nothing does once it has grown.
func TestWhatAClaimSaysOfOtherThingsStays(t *testing.T) {
	claim := sized("2Gi", "1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizePending)
	claim.Status.AllocatedResourceStatuses["other"] = v1.PersistentVolumeClaimNodeResizePending
	claim.Status.Conditions = []v1.PersistentVolumeClaimCondition{
		{Type: v1.PersistentVolumeClaimResizing}, {Type: v1.PersistentVolumeClaimFileSystemResizePending}, {Type: "Other"},
		{Type: v1.PersistentVolumeClaimControllerResizeError}, {Type: v1.PersistentVolumeClaimNodeResizeError},
	}
	s := Grown(claim, resource.MustParse("2Gi")).Status
	if len(s.Conditions) != 1 || s.Conditions[0].Type != "Other" {
		t.Errorf("it says of itself %+v", s.Conditions)
	}
	if len(s.AllocatedResourceStatuses) != 1 || s.AllocatedResourceStatuses["other"] != v1.PersistentVolumeClaimNodeResizePending {
		t.Errorf("it says how far it has come %v", s.AllocatedResourceStatuses)
	}
}

// TestThatAClaimCouldNotBeGrownIsSaidFromWhenItCouldNot: once, until it was otherwise meanwhile.
func TestThatAClaimCouldNotBeGrownIsSaidFromWhenItCouldNot(t *testing.T) {
	first, later := metav1.Unix(100, 0), metav1.Unix(200, 0)
	claim := NotGrown(sized("2Gi", "1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizePending), errors.New("no"), false, first)
	if c := NotGrown(claim, errors.New("no"), false, later).Status.Conditions; len(c) != 1 || !c[0].LastTransitionTime.Equal(&first) {
		t.Errorf("said again: %+v", c)
	}
	claim.Status.Conditions[0].Status = v1.ConditionFalse
	if c := NotGrown(claim, errors.New("never"), false, later).Status.Conditions; len(c) != 1 || c[0].Status != v1.ConditionTrue ||
		!c[0].LastTransitionTime.Equal(&later) || c[0].Message != "failed to expand pvc with never" {
		t.Errorf("said anew: %+v", c)
	}
}
