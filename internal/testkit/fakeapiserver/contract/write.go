package contract

import (
	"strconv"

	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

var writeCases = []Case{
	{"a pod gets its defaults", func(k *kit) {
		p := k.pod("defaults", "n1")
		c := p.Spec.Containers[0]
		k.equal("generation", p.Generation, int64(1))
		k.equal("phase", p.Status.Phase, corev1.PodPending)
		k.equal("class", p.Status.QOSClass, corev1.PodQOSBestEffort)
		k.equal("DNS policy", p.Spec.DNSPolicy, corev1.DNSClusterFirst)
		k.equal("grace", *p.Spec.TerminationGracePeriodSeconds, int64(30))
		k.equal("service links", *p.Spec.EnableServiceLinks, true)
		k.equal("scheduler", p.Spec.SchedulerName, "default-scheduler")
		k.equal("pull policy", c.ImagePullPolicy, corev1.PullAlways)
		k.equal("termination message", c.TerminationMessagePath, "/dev/termination-log")
		k.equal("message policy", c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
		k.equal("security context is there", p.Spec.SecurityContext != nil, true)
		_, err := k.pods.Create(k.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "defaults"}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "app"}},
		}}, metav1.CreateOptions{})
		k.is("second create", err, apierrors.IsAlreadyExists)
		_, err = k.pods.Get(k.ctx, "absent", metav1.GetOptions{})
		k.is("get of an absent one", err, apierrors.IsNotFound)
	}},
	{"a status patch changes the status only", func(k *kit) {
		p := k.pod("status", "n1")
		got, err := k.patchStatus("status", `{"metadata":{"uid":"`+string(p.UID)+`","labels":{"a":"b"}},"spec":{"nodeName":"elsewhere"},`+
			`"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
		if err != nil {
			k.t.Fatal(err)
		}
		k.equal("phase", got.Status.Phase, corev1.PodRunning)
		k.equal("node", got.Spec.NodeName, "n1")
		k.equal("generation", got.Generation, int64(1))
		k.equal("label", got.Labels["a"], "b")
		again, err := k.patchStatus("status", `{"status":{"conditions":[{"type":"Initialized","status":"True"}]}}`)
		k.works("second patch", err)
		k.equal("conditions are merged by type", len(again.Status.Conditions), 2)
		same, err := k.patchStatus("status", `{"status":{"conditions":[{"type":"Initialized","status":"True"}]}}`)
		k.works("patch without a change", err)
		k.equal("its version", same.ResourceVersion, again.ResourceVersion)
		_, err = k.patchStatus("status", `{"metadata":{"uid":"other"}}`)
		k.is("patch with another UID", err, apierrors.IsInvalid)
		_, err = k.patchStatus("status", `{"metadata":{"resourceVersion":"`+p.ResourceVersion+`"},"status":{"phase":"Failed"}}`)
		k.is("patch with an old version", err, apierrors.IsConflict)
		_, err = k.patchStatus("absent", `{"status":{}}`)
		k.is("patch of an absent one", err, apierrors.IsNotFound)
		_, err = k.patchStatus("status", `{"status":{"qosClass":"Guaranteed"}}`)
		k.is("another class", err, apierrors.IsInvalid)
		full := same.DeepCopy()
		full.Status.Phase = corev1.PodFailed
		full.Annotations = map[string]string{"x": "y"}
		full, err = k.pods.Update(k.ctx, full, metav1.UpdateOptions{})
		k.works("update", err)
		k.equal("phase after an update of the rest", full.Status.Phase, corev1.PodRunning)
		k.equal("annotation", full.Annotations["x"], "y")
		full.UID = "other"
		_, err = k.pods.Update(k.ctx, full, metav1.UpdateOptions{})
		k.is("update with another UID", err, apierrors.IsConflict)
	}},
	{"a container that ended for good does not run again", func(k *kit) {
		k.pod("ended", "n1")
		patch := func(state string) error {
			_, err := k.patchStatus("ended", `{"status":{"containerStatuses":[{"name":"c","image":"app","imageID":"","ready":false,"restartCount":0,"state":`+state+`}]}}`)
			return err
		}
		k.works("terminated", patch(`{"terminated":{"exitCode":1}}`))
		k.is("running again", patch(`{"running":{},"terminated":null}`), apierrors.IsInvalid)
	}},
	{"a watch by node sees a pod come, change and go", func(k *kit) {
		list, err := k.pods.List(k.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n-watch"})
		k.works("list", err)
		k.equal("pods at first", len(list.Items), 0)
		w, err := k.pods.Watch(k.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n-watch", ResourceVersion: list.ResourceVersion})
		if err != nil {
			k.t.Fatal(err)
		}
		defer w.Stop()
		k.pod("foreign", "n1")
		k.pod("watched", "")
		target := corev1.ObjectReference{Name: "n-watch"}
		bind := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "watched", Namespace: k.ns}, Target: target}
		k.works("bind", k.pods.Bind(k.ctx, bind, metav1.CreateOptions{}))
		k.is("bind again", k.pods.Bind(k.ctx, bind, metav1.CreateOptions{}), apierrors.IsConflict)
		ev := k.next(w)
		k.equal("first event", ev.Type, watch.Added)
		k.equal("its pod", ev.Object.(*corev1.Pod).Name, "watched")
		_, err = k.patchStatus("watched", `{"status":{"phase":"Running"}}`)
		k.works("patch", err)
		k.equal("second event", k.next(w).Type, watch.Modified)
		zero := int64(0)
		k.works("delete", k.pods.Delete(k.ctx, "watched", metav1.DeleteOptions{GracePeriodSeconds: &zero}))
		ev = k.next(w)
		k.equal("event of the mark", ev.Type, watch.Modified)
		k.equal("it has the time of deletion", ev.Object.(*corev1.Pod).DeletionTimestamp != nil, true)
		k.equal("generation", ev.Object.(*corev1.Pod).Generation, int64(2))
		k.equal("last event", k.next(w).Type, watch.Deleted)
		_, err = k.pods.List(k.ctx, metav1.ListOptions{FieldSelector: "spec.unheardOf=x"})
		k.is("a selector of an unknown field", err, apierrors.IsBadRequest)
	}},
	{"a watch from a version still to come is taken and brings nothing", func(k *kit) {
		list, err := k.pods.List(k.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n-ahead"})
		k.works("list", err)
		now, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
		k.works("version", err)
		second := int64(1)
		w, err := k.pods.Watch(k.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n-ahead", ResourceVersion: strconv.FormatInt(now+1_000_000, 10), TimeoutSeconds: &second, AllowWatchBookmarks: true})
		if err != nil {
			k.t.Fatal(err)
		}
		defer w.Stop()
		k.pod("unseen", "n-ahead")
		for ev := range w.ResultChan() {
			k.t.Errorf("it brought %v", ev)
		}
	}},
	{"a list of one name tells the version of now, though there is none of the name", func(k *kit) {
		o := metav1.ListOptions{FieldSelector: "metadata.name=-,spec.nodeName=n-none", Limit: 1}
		of := func() int64 {
			list, err := k.pods.List(k.ctx, o)
			k.works("list", err)
			if len(list.Items) > 0 {
				k.t.Errorf("it found %v", list.Items)
			}
			version, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
			k.works("version", err)
			return version
		}
		before := of()
		made, err := strconv.ParseInt(k.pod("later", "n-later").ResourceVersion, 10, 64)
		k.works("version", err)
		if after := of(); before >= made || after < made {
			k.t.Errorf("before it was made at %d the version was %d, then %d", made, before, after)
		}
	}},
	{"a watch without a version starts with what is there", func(k *kit) {
		k.pod("initial", "n-initial")
		opts := metav1.ListOptions{FieldSelector: "spec.nodeName=n-initial"}
		w, err := k.pods.Watch(k.ctx, opts)
		if err != nil {
			k.t.Fatal(err)
		}
		defer w.Stop()
		k.equal("first event", k.next(w).Type, watch.Added)
		yes := true
		opts.SendInitialEvents, opts.AllowWatchBookmarks = &yes, true
		opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
		streamed, err := k.pods.Watch(k.ctx, opts)
		if err != nil {
			k.t.Fatal(err)
		}
		defer streamed.Stop()
		k.equal("first event of a streamed list", (<-streamed.ResultChan()).Type, watch.Added)
		mark := <-streamed.ResultChan()
		k.equal("end of the streamed list", mark.Type, watch.Bookmark)
		k.equal("its mark", mark.Object.(*corev1.Pod).Annotations[metav1.InitialEventsAnnotationKey], "true")
	}},
	{"a node is registered, patched and looked up", func(k *kit) {
		nodes := k.client.CoreV1().Nodes()
		n, err := nodes.Create(k.ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "contract-node"},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}, metav1.CreateOptions{})
		if err != nil {
			k.t.Fatal(err)
		}
		k.equal("generation", n.Generation, int64(0))
		k.equal("conditions given at creation", len(n.Status.Conditions), 1)
		n, err = nodes.Patch(k.ctx, n.Name, types.StrategicMergePatchType,
			[]byte(`{"metadata":{"labels":{"a":"b"}},"spec":{"unschedulable":true},"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}`),
			metav1.PatchOptions{}, "status")
		k.works("patch", err)
		k.equal("address", n.Status.Addresses[0].Address, "10.0.0.1")
		k.equal("label", n.Labels["a"], "b")
		k.equal("spec", n.Spec.Unschedulable, false)
		n.Status.Addresses = nil
		n.Spec.Unschedulable = true
		n, err = nodes.Update(k.ctx, n, metav1.UpdateOptions{})
		k.works("update", err)
		k.equal("address after an update", len(n.Status.Addresses), 1)
		k.equal("spec after an update", n.Spec.Unschedulable, true)
		k.works("delete", nodes.Delete(k.ctx, n.Name, metav1.DeleteOptions{}))
	}},
	{"a token is bound to its pod", func(k *kit) {
		p := k.pod("token", "n1")
		seconds := int64(600)
		ask := func(uid types.UID, seconds *int64) (*authnv1.TokenRequest, error) {
			return k.client.CoreV1().ServiceAccounts(k.ns).CreateToken(k.ctx, "default", &authnv1.TokenRequest{Spec: authnv1.TokenRequestSpec{
				ExpirationSeconds: seconds,
				BoundObjectRef:    &authnv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "token", UID: uid},
			}}, metav1.CreateOptions{})
		}
		got, err := ask(p.UID, &seconds)
		k.works("request", err)
		k.equal("there is a token", got.Status.Token != "", true)
		_, err = ask("other", &seconds)
		k.is("for another pod", err, apierrors.IsConflict)
		short := int64(60)
		_, err = ask(p.UID, &short)
		k.is("for a minute", err, apierrors.IsInvalid)
	}},
}
