package main

import (
	"errors"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/vpcroute/vpcroute/pkg/bridge"
)

// Codes of this plugin's own, from 100 on as the CNI spec leaves them free. They
// are described in docs/cni.md.
const (
	codeExhausted uint = 100 // no address left
	codeAttached  uint = 101 // ADD of an attachment that exists
	codeInterface uint = 102 // the pod has an interface of that name
	codeTaken     uint = 103 // a wanted address is another pod's
	codePorts     uint = 104 // the bridge holds all the ports it can
	codeBridge    uint = 105 // the bridge's name is taken, or IPv6 is off
	codeKernel    uint = 106 // the kernel refused something
	codeMismatch  uint = 110 // CHECK found a difference
)

// maxMessage bounds cause and next step together, in bytes, so that a pod's
// event shows all of it.
const maxMessage = 290

// failure is a CNI error with its cause and what to do next.
func failure(code uint, cause error, next string) *types.Error {
	msg := oneLine(cause.Error())
	if room := maxMessage - len("; ") - len(next); len(msg) > room {
		msg = strings.ToValidUTF8(msg[:room-3], "") + "..."
	}
	return types.NewError(code, msg, next)
}

// oneLine joins the lines in which errors.Join puts errors.
func oneLine(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", "; ") }

// asCNIError gives an error its code and next step; nil stays nil.
func asCNIError(err error) *types.Error {
	var known *types.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.Is(err, bridge.ErrAttached):
		return failure(codeAttached, err, "DEL this attachment first")
	case errors.Is(err, bridge.ErrInterfaceExists):
		return failure(codeInterface, err, "remove the other interface, or let one plugin of the chain make it")
	case errors.Is(err, bridge.ErrNamespace):
		return failure(types.ErrInvalidNetNS, err, "CNI_NETNS must be the pod's network namespace")
	case errors.Is(err, bridge.ErrFull):
		return failure(codePorts, err, "lower max-pods of this node below it")
	case errors.Is(err, bridge.ErrNotBridge):
		return failure(codeBridge, err, `rename that link, or set "bridge" to another name`)
	case errors.Is(err, bridge.ErrNoIPv6):
		return failure(codeBridge, err, "switch IPv6 on, or take the IPv6 range out of podCIDRs")
	}
	return failure(codeKernel, err, "see the kernel's log, then try again")
}
