package azure

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// A route has neither tags nor a description: its name is the mark. Ours are
// "vpcroute-HASH-DESTINATION", HASH being 16 hexadecimal digits of the SHA-256 of
// the cluster id and DESTINATION the range (10.244.1.0-24, or an IPv6 address as
// 32 hexadecimal digits). Names are compared whole, so no cluster's name is the
// beginning of another's. At most 62 of the 80 characters are used.

const markPrefix = "vpcroute-"

var markPattern = regexp.MustCompile(`(?i)^vpcroute-([0-9a-f]{16})-`)

func hashOf(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:8])
}

// nameOf is the name of an owner's route to a destination.
func nameOf(owner string, d netip.Prefix) string {
	address := d.Addr().String()
	if d.Addr().Is6() {
		digits := d.Addr().As16()
		address = hex.EncodeToString(digits[:])
	}
	return fmt.Sprintf("%s%s-%s-%d", markPrefix, hashOf(owner), address, d.Bits())
}

// ownerOf reads the mark of an entry: owner for exactly the name that it gives
// the destination, and the hash of another installation, whose id is not known.
func ownerOf(owner, name string, d netip.Prefix) string {
	if d.IsValid() && strings.EqualFold(name, nameOf(owner, d)) {
		return owner
	}
	if m := markPattern.FindStringSubmatch(name); m != nil && !strings.EqualFold(m[1], hashOf(owner)) {
		return markPrefix + strings.ToLower(m[1])
	}
	return ""
}
