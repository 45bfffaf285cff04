package aws

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/vpcroute/vpcroute/test/cloud"
)

// parameters are those of a request's form.
type parameters url.Values

func (q parameters) get(name string) string { return url.Values(q).Get(name) }

// list returns NAME.1, NAME.2 and so on.
func (q parameters) list(name string) (values []string) {
	for i := 1; ; i++ {
		v, there := q[fmt.Sprintf("%s.%d", name, i)]
		if !there {
			return values
		}
		values = append(values, v[0])
	}
}

// A filter is met by any of its values.
type filter struct {
	name   string
	values []string
}

func (q parameters) filters() (filters []filter) {
	for i := 1; ; i++ {
		prefix := fmt.Sprintf("Filter.%d", i)
		name := q.get(prefix + ".Name")
		if name == "" {
			return filters
		}
		filters = append(filters, filter{name, q.list(prefix + ".Value")})
	}
}

// check refuses a parameter that is not known, or that is given with ids where
// only one of the two may be.
func (q parameters) check(known []string) *problem {
	for name := range q {
		first, _, _ := strings.Cut(name, ".")
		if !slices.Contains([]string{"Action", "Version", "DryRun"}, name) && !slices.Contains(known, name) && !slices.Contains(known, first) {
			return problemf("UnknownParameter", "The parameter %s is not recognized", name)
		}
	}
	if q.get("MaxResults") != "" {
		for name := range q {
			if strings.HasSuffix(name, "Id.1") {
				return problemf("InvalidParameterCombination", "The parameter %s cannot be used with the parameter maxResults", name)
			}
		}
	}
	return nil
}

// String writes the parameters for the log, those of every call left out.
func (q parameters) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if name != "Action" && name != "Version" {
			parts = append(parts, name+"="+q.get(name))
		}
	}
	return strings.Join(parts, " ")
}

// selects is true when an object meets every filter. have returns its values for
// a filter, and false for one that is not known.
func selects(filters []filter, have func(name string) ([]string, bool)) (bool, *problem) {
	for _, f := range filters {
		values, known := have(f.name)
		if !known {
			return false, problemf("InvalidParameterValue", "The filter '%s' is invalid", f.name)
		}
		if !slices.ContainsFunc(values, func(v string) bool { return slices.Contains(f.values, v) }) {
			return false, nil
		}
	}
	return true, nil
}

// statuses are those of codes that do not come with status 400.
var statuses = map[string]int{
	"UnauthorizedOperation": http.StatusForbidden,
	"AuthFailure":           http.StatusUnauthorized,
	"DryRunOperation":       http.StatusPreconditionFailed,
	"RequestLimitExceeded":  http.StatusServiceUnavailable,
	"Unavailable":           http.StatusServiceUnavailable,
	"InternalError":         http.StatusInternalServerError,
}

const requestID = "4f2c7b1e-0000-4000-8000-000000000001"

// encode spells an answer: the operation's response with its fields, or the list
// of errors.
func encode(w http.ResponseWriter, r *http.Request, a cloud.Answer) {
	var text bytes.Buffer
	text.WriteString(xml.Header)
	status := http.StatusOK
	if a.Code != "" {
		if status = statuses[a.Code]; status == 0 {
			status = http.StatusBadRequest
		}
		text.WriteString("<Response><Errors><Error><Code>")
		_ = xml.EscapeText(&text, []byte(a.Code))
		text.WriteString("</Code><Message>")
		_ = xml.EscapeText(&text, []byte(a.Message))
		fmt.Fprintf(&text, "</Message></Error></Errors><RequestID>%s</RequestID></Response>", requestID)
	} else {
		writeResponse(&text, r.Form.Get("Action")+"Response", a.Body)
	}
	if a.Status != 0 {
		status = a.Status
	}
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.WriteHeader(status)
	// A failed write means that the client is gone.
	_, _ = w.Write(text.Bytes())
}

func writeResponse(text *bytes.Buffer, name string, body any) {
	fmt.Fprintf(text, `<%s xmlns="http://ec2.amazonaws.com/doc/%s/"><requestId>%s</requestId>`, name, apiVersion, requestID)
	if body != nil {
		var content bytes.Buffer
		if err := xml.NewEncoder(&content).EncodeElement(body, xml.StartElement{Name: xml.Name{Local: "x"}}); err != nil {
			panic(fmt.Sprintf("aws: encode %s: %v", name, err))
		}
		text.Write(bytes.TrimSuffix(bytes.TrimPrefix(content.Bytes(), []byte("<x>")), []byte("</x>")))
	}
	fmt.Fprintf(text, "</%s>", name)
}
