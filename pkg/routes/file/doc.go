// Package file runs the route controller without Kubernetes: the Node list and
// the ledger are files. It must not judge Nodes beyond whether they can be
// read, and a list that cannot be read must never look like a shorter one.
package file
