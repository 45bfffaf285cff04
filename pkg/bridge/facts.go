package bridge

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Facts are what a node's kernel offers to pods.
type Facts struct {
	// Kernel is its release, for example "6.1.0-18-amd64"; OldKernel is true
	// when it has no altnames, which came with Linux 5.5.
	Kernel    string
	OldKernel bool
	// IPv6 is true when the kernel has IPv6 and it is not off for all links.
	IPv6 bool
	// Forwarding4 and Forwarding6 are true when packets are forwarded.
	Forwarding4, Forwarding6 bool
	// BridgeNetfilter is true when the packet filter can see bridged packets:
	// module br_netfilter is there.
	BridgeNetfilter bool
}

// ReadFacts looks at the network namespace of the calling process.
func ReadFacts() Facts {
	var name unix.Utsname
	_ = unix.Uname(&name) // fails for a bad address only
	release := unix.ByteSliceToString(name.Release[:])
	return Facts{
		Kernel:          release,
		OldKernel:       olderThan(release, 5, 5),
		IPv6:            hasIPv6() && !sysctl("ipv6/conf/all/disable_ipv6"),
		Forwarding4:     sysctl("ipv4/ip_forward"),
		Forwarding6:     sysctl("ipv6/conf/all/forwarding"),
		BridgeNetfilter: exists("bridge/bridge-nf-call-iptables"),
	}
}

// olderThan compares the first two numbers of a kernel release. One that
// cannot be read is taken to be new enough.
func olderThan(release string, major, minor int) bool {
	var x, y int
	if _, err := fmt.Sscanf(release, "%d.%d", &x, &y); err != nil {
		return false
	}
	return x < major || x == major && y < minor
}

const sysctls = "/proc/sys/net/"

// sysctl tells whether a switch below net is there and not 0.
func sysctl(path string) bool {
	b, err := os.ReadFile(sysctls + path)
	return err == nil && !bytes.Equal(bytes.TrimSpace(b), []byte("0"))
}

func exists(path string) bool {
	_, err := os.Stat(sysctls + path)
	return err == nil
}
