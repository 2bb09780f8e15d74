package dra_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/dra"
)

// Devices in, an allocation out.
func Example() {
	node, driver, model := "n1", "gpu.example.com", "H100"
	published := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "n1-gpus"},
		Spec:       resourcev1.ResourceSliceSpec{Driver: driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}},
	}
	for i := range 4 {
		published.Spec.Devices = append(published.Spec.Devices, resourcev1.Device{
			Name: fmt.Sprint("gpu-", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"productName": {StringValue: &model}},
		})
	}
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.example.com"`}}},
	}}
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "vision", Name: "two"}, Spec: resourcev1.ResourceClaimSpec{
		Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpus", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Count: 2}}}},
	}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "vision", Name: "train", UID: "1"}}

	inventory := dra.New(dra.Config{}, []*resourcev1.ResourceSlice{published}, []*resourcev1.DeviceClass{class})
	demand, err := inventory.Demand(pod, []*resourcev1.ResourceClaim{claim})
	fmt.Println(demand.GPUs, err)
	claims, err := inventory.Allocate(pod, []*resourcev1.ResourceClaim{claim}, lockstep.Member{Node: "n1", Devices: 0b1010})
	for _, r := range claims[0].Status.Allocation.Devices.Results {
		fmt.Println(r.Driver, r.Pool, r.Device)
	}
	fmt.Println(claims[0].Status.ReservedFor[0].Name, err)
	// Output:
	// 2 <nil>
	// gpu.example.com n1 gpu-1
	// gpu.example.com n1 gpu-3
	// train <nil>
}
