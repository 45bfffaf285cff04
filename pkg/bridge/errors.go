package bridge

import "errors"

// What a caller may need to tell apart.
var (
	// ErrNoBridge: there is no link of the bridge's name.
	ErrNoBridge = errors.New("does not exist")
	// ErrNotBridge: the bridge's name is taken by another kind of link.
	ErrNotBridge = errors.New("its name is taken by something else")
	// ErrAttached: the attachment has a port already.
	ErrAttached = errors.New("the attachment exists already")
	// ErrInterfaceExists: the pod has an interface of the wanted name already.
	ErrInterfaceExists = errors.New("the pod has that interface already")
	// ErrNamespace: the pod's network namespace is missing, not one, or the
	// node's own.
	ErrNamespace = errors.New("not the network namespace of a pod")
	// ErrTaken: an address is claimed by another port.
	ErrTaken = errors.New("address taken")
	// ErrFull: the bridge holds MaxPorts ports.
	ErrFull = errors.New("the bridge has no port left")
	// ErrNoIPv6: an IPv6 address is wanted where IPv6 is off.
	ErrNoIPv6 = errors.New("IPv6 is off")
)

var (
	// errInterrupted: links kept changing while they were listed.
	errInterrupted = errors.New("the list kept changing while it was read")
	errMalformed   = errors.New("malformed message from the kernel")
	// errNoAnswer: the kernel may or may not have done what it was asked.
	errNoAnswer = errors.New("the kernel's answer was lost")
)

// A MismatchError is the one thing in which an attachment differs from what it
// should be.
type MismatchError struct {
	// Object is what differs, for example "host veth pod0a1b2c3d4e5f".
	Object string
	// Got and Want are the values, in words where there is no number.
	Got, Want string
}

// Error names object, value found and value wanted.
func (e *MismatchError) Error() string { return e.Object + " is " + e.Got + ", want " + e.Want }
