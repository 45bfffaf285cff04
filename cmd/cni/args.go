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

// alias is what people read at the host veth: whose it is.
func alias(p podArgs, containerID, ifName string) string {
	var words []string
	if name := p.String(); name != "" {
		words = append(words, printable(name))
	}
	if p.UID != "" {
		words = append(words, "uid="+printable(p.UID))
	}
	words = append(words, "container="+containerID)
	if p.Sandbox != "" && p.Sandbox != containerID {
		words = append(words, "sandbox="+printable(p.Sandbox))
	}
	text := strings.Join(append(words, "if="+ifName), " ")
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
