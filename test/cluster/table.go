package cluster

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Table returns what "kubectl get" prints for the objects under a path of the
// API, for example "/apis/vpcroute.io/v1alpha1/vpcroutes": one map per object,
// from the column's heading to the cell.
func (c *Cluster) Table(t testing.TB, path string) []map[string]any {
	t.Helper()
	raw, err := c.Clientset.Discovery().RESTClient().Get().AbsPath(path).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatalf("get %s as a table: %v", path, err)
	}
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil {
		t.Fatalf("get %s as a table: %v", path, err)
	}
	var rows []map[string]any
	for _, r := range table.Rows {
		row := map[string]any{}
		for i, column := range table.ColumnDefinitions {
			if column.Priority == 0 {
				row[strings.ToUpper(column.Name)] = r.Cells[i]
			}
		}
		rows = append(rows, row)
	}
	return rows
}
