package main

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/e2e/cluster"
)

// beFloor binds every pod of whole gangs that waits, node after node, and ends.
// It lists once, and has no watch, no state and no check.
func beFloor(ctx context.Context, kubeconfig string) error {
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	rc.ContentType = "application/vnd.kubernetes.protobuf"
	rc.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	rc.QPS, rc.Burst = -1, -1
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.schedulerName", "floor").String()})
	if err != nil {
		return err
	}
	there := make(map[string]int)
	for i := range list.Items {
		there[list.Items[i].Labels[cluster.GangLabel]]++
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		p := &list.Items[i]
		if want, err := strconv.Atoi(p.Labels[cluster.MembersLabel]); err == nil && there[p.Labels[cluster.GangLabel]] == want {
			pods = append(pods, p)
		}
	}
	q := nodes.Items[0].Status.Allocatable[cluster.GPU]
	each := int(q.Value())
	return cluster.Each(len(pods), func(i int) error {
		p := pods[i]
		return client.CoreV1().Pods(p.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: nodes.Items[i/each].Name},
		}, metav1.CreateOptions{})
	})
}
