package bridge

import (
	"encoding/base32"
	"encoding/binary"
	"hash/fnv"
	"net"
	"net/netip"
	"strings"
)

// An Owner is whose a port is: an attachment, in CNI's terms.
type Owner struct {
	ContainerID string
	IfName      string
}

// portPrefix starts the name of every host veth.
const portPrefix = "pod"

// hostMACPrefix starts the hardware address of every host veth.
const hostMACPrefix = 0x0e

// portName is base32 without padding in lower case: 12 digits hold 60 bits and
// fill an interface name with the prefix.
var portName = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// PortName is the name of the owner's host veth.
func (o Owner) PortName() string {
	return portPrefix + portName.EncodeToString(o.hash())[:12]
}

func (o Owner) hash() []byte {
	h := fnv.New64a()
	h.Write([]byte(o.ContainerID + "\x00" + o.IfName))
	return h.Sum(nil)
}

// hostMAC is the hardware address of the owner's host veth: locally
// administered, unicast and of another block than any pod's.
func (o Owner) hostMAC() net.HardwareAddr {
	return append(net.HardwareAddr{hostMACPrefix}, o.hash()[:5]...)
}

// macFor is the hardware address that goes with an address: 0a:58 and the IPv4
// octets, or the index where there is no IPv4. So an address that is used again
// meets no neighbour entry that is out of date.
func macFor(a netip.Addr, index uint32) net.HardwareAddr {
	mac := net.HardwareAddr{0x0a, 0x58}
	if a.Is4() {
		return append(mac, a.AsSlice()...)
	}
	return binary.BigEndian.AppendUint32(mac, index)
}

// Altname is how an address is spelled as a link's altname: IPv6 without colons,
// which interface names cannot hold.
func Altname(a netip.Addr) string { return strings.ReplaceAll(a.String(), ":", "-") }

// AltnameAddr is the address that an altname spells, and false when it spells
// none.
func AltnameAddr(altname string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(strings.ReplaceAll(altname, "-", ":"))
	return a, err == nil && Altname(a) == altname
}
