package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of this package's types.
var GroupVersion = schema.GroupVersion{Group: "vpcroute.io", Version: "v1alpha1"}

// SchemeBuilder collects what AddToScheme adds.
var SchemeBuilder = runtime.NewSchemeBuilder(addTypes)

// AddToScheme adds this package's types to a scheme.
var AddToScheme = SchemeBuilder.AddToScheme

func addTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &VPCRoute{}, &VPCRouteList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
