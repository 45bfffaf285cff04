// Package podcidr decides which podCIDR a node gets: the next one of the cluster
// CIDRs that nobody holds. It is pure and knows neither Nodes nor Kubernetes;
// what is held it is told, and it must not forget any of it by itself.
package podcidr
