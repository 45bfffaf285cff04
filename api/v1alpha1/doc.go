// Package v1alpha1 is the API group vpcroute.io/v1alpha1: VPCRoute, the record
// of one route of the VPC's route table. It holds types, their validation (in
// the schema generated from them) and their names; it must not hold behaviour,
// nor import anything of this module.
//
// +kubebuilder:object:generate=true
// +groupName=vpcroute.io
package v1alpha1

//go:generate go tool -modfile=../../tools/go.mod controller-gen object crd paths=. output:crd:dir=../../manifests/base/crd
