// The tree views. Nodes come whole from the server (`flagos/tree`), so that every editor could show the same.
import * as vscode from 'vscode';

export type View = 'devices' | 'lines' | 'routes' | 'fallbacks' | 'findings';
export const views: View[] = ['devices', 'lines', 'routes', 'fallbacks', 'findings'];

/** One node of a `flagos/tree` reply. */
export interface TreeNode {
  label: string;
  description?: string;
  tooltip?: string;
  location?: { uri: string; range: { start: { line: number; character: number }; end: { line: number; character: number } } } | null;
  children?: TreeNode[];
}

/** Asks the server for a view's nodes; rejects while it is not running. */
export type Ask = (view: View) => Promise<TreeNode[]>;

export class TreeView implements vscode.TreeDataProvider<TreeNode> {
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onDidChangeTreeData = this.changed.event;

  constructor(private readonly view: View, private readonly ask: Ask) {}

  refresh(): void {
    this.changed.fire();
  }

  async getChildren(node?: TreeNode): Promise<TreeNode[]> {
    if (node) return node.children ?? [];
    try {
      return await this.ask(this.view);
    } catch (error) {
      return [{ label: 'Not available', description: error instanceof Error ? error.message : String(error) }];
    }
  }

  getTreeItem(node: TreeNode): vscode.TreeItem {
    const item = new vscode.TreeItem(
      node.label,
      node.children?.length ? vscode.TreeItemCollapsibleState.Expanded : vscode.TreeItemCollapsibleState.None);
    item.description = node.description;
    if (node.tooltip) item.tooltip = new vscode.MarkdownString(node.tooltip);
    if (node.location) {
      const { start, end } = node.location.range;
      const range = new vscode.Range(start.line, start.character, end.line, end.character);
      item.command = { command: 'vscode.open', title: 'Open', arguments: [vscode.Uri.parse(node.location.uri), { selection: range }] };
    }
    return item;
  }
}
