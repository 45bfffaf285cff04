// Package node is the node agent's work: it brings a node to the state that the
// CNI plugin needs (binaries, kernel settings, configuration, packet filter)
// and tells what it found. It never attaches a pod, never talks to a cloud, and
// never logs: it returns facts and errors, and the command reports them.
package node
