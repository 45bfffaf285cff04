package main

import "strings"

// podArgs are what a Kubernetes runtime says in CNI_ARGS about the pod.
type podArgs struct {
	Namespace, Name, UID string
	// Sandbox is the runtime's id of the pod's sandbox.
	Sandbox string
}

// parseArgs reads CNI_ARGS, "KEY=VALUE;KEY=VALUE". Other keys, and text that is
// in no such form, are for others and passed over.
func parseArgs(text string) podArgs {
	var p podArgs
	for _, pair := range strings.Split(text, ";") {
		key, value, _ := strings.Cut(pair, "=")
		switch key {
		case "K8S_POD_NAMESPACE":
			p.Namespace = value
		case "K8S_POD_NAME":
			p.Name = value
		case "K8S_POD_UID":
			p.UID = value
		case "K8S_POD_INFRA_CONTAINER_ID":
			p.Sandbox = value
		}
	}
	return p
}

// String returns "NAMESPACE/NAME", and "" when there is no pod.
func (p podArgs) String() string {
	if p.Name == "" {
		return ""
	}
	return p.Namespace + "/" + p.Name
}

// maxAlias is the kernel's limit on an alias in bytes (IFALIASZ less one).
const maxAlias = 255

// alias is what people read at the host veth: whose it is. The ids are whole; it
// is the name that is cut when there is no room for all.
func alias(p podArgs, containerID, ifName string) string {
	var ids strings.Builder
	if p.UID != "" {
		ids.WriteString("uid=" + printable(p.UID) + " ")
	}
	if p.Sandbox != "" && p.Sandbox != containerID {
		ids.WriteString("sandbox=" + printable(p.Sandbox) + " ")
	}
	ids.WriteString("container=" + containerID + " if=" + ifName)
	name := printable(p.String())
	if room := maxAlias - len(" ") - ids.Len(); len(name) > room {
		name = name[:max(room, 0)]
	}
	text := strings.TrimSpace(name + " " + ids.String())
	return text[:min(len(text), maxAlias)]
}

// printable replaces what would break the line or its words.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}
